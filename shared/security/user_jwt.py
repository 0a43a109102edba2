"""Signed-in fans: the JWT of the seller's identity provider, checked once and remembered until it ends.

The algorithm is pinned by our settings and by the kind of key, never by the token: with a secret only HS256, with
public keys the one algorithm of the key that is named. `iss`, `aud`, `exp`, `nbf` and `iat` are checked, `exp` and
`sub` must be there.
"""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import jwt
import orjson

from shared.rpc.outgoing import outgoing
from shared.runtime.settings import ServiceSettings
from shared.security.jwks_client import ProviderKeys, PublicKey
from shared.security.tokens import Keyring, b64, exact, unb64
from shared.web.problems import BadCredential

LEEWAY_S = 5
USER_ID_MAX_CHARS = 255
HOLDER_PREFIX = "user."
REMEMBERED_MAX = 65_536
UNREADABLE = (jwt.PyJWTError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


class User(NamedTuple):
    """A signed-in fan: who it is by the provider, and the name we give them in the line."""

    user_id: str
    holder: str
    text: str

    @property
    def claims(self) -> dict[str, Any]:
        """All that the provider says of this fan, verified; for rules that look at more than who it is."""
        claims: dict[str, Any] = json.loads(unb64(self.text.split(".")[1]))
        return claims


class Keys(Protocol):
    """Where the key of a token comes from."""

    generation: int

    async def find(self, algorithm: Any, kid: Any) -> PublicKey: ...
    def freshen(self) -> None: ...


class OneSecret:
    """The seller's secret, for HS256 and nothing else; a `kid` says nothing here."""

    def __init__(self, secret: str) -> None:
        self._key = PublicKey(None, "HS256", secret.encode())
        self.generation = 0

    async def find(self, algorithm: Any, kid: Any) -> PublicKey:
        if algorithm != "HS256":
            raise BadCredential
        return self._key

    def freshen(self) -> None:
        """A secret does not grow old by itself."""


class Users:
    """Reads users' JWTs. The latest that were verified are remembered by their hash, until the keys change."""

    def __init__(
        self, settings: ServiceSettings, keys: Keys | None, *, cache_entries_max: int = REMEMBERED_MAX
    ) -> None:
        self._settings, self._keys, self._remembered_max = settings, keys, cache_entries_max
        self._remembered: OrderedDict[bytes, tuple[float, str, str]] = OrderedDict()
        self._generation = 0
        self._checks: Any = {"require": ["exp", "sub"], "verify_aud": settings.user_jwt_audience is not None,
                             "enforce_minimum_key_length": True}  # fmt: skip

    async def read(self, text: str) -> User:
        """Raises `BadCredential` for anything but a valid token, `Unavailable` while its key cannot be had."""
        if self._keys is None:
            raise BadCredential
        self._keys.freshen()
        if self._generation != self._keys.generation:  # a key that was withdrawn vouches for nobody
            self._generation = self._keys.generation
            self._remembered.clear()
        name = hashlib.sha256(text.encode(errors="replace")).digest()
        known = self._remembered.get(name)
        if known is None:
            known = await self._verify(text)
            self._remembered[name] = known
            if len(self._remembered) > self._remembered_max:
                self._remembered.popitem(last=False)
        expires_at_s, user_id, holder = known
        if time.time() >= expires_at_s + LEEWAY_S:
            raise BadCredential("This token has expired; sign in again.")
        return User(user_id, holder, text)

    async def _verify(self, text: str) -> tuple[float, str, str]:
        assert self._keys is not None
        try:
            header = orjson.loads(unb64(text.split(".", 1)[0]))
            exact(text.rpartition(".")[2])  # other spellings of one signature would be other fans to a balancer
            algorithm, kid = header["alg"], header.get("kid")
        except UNREADABLE as broken:
            raise BadCredential from broken
        except AttributeError as broken:  # JSON, but no object
            raise BadCredential from broken
        key = await self._keys.find(algorithm, kid)
        try:
            claims = jwt.decode(
                text, key.key, algorithms=[key.algorithm], options=self._checks, leeway=LEEWAY_S,
                issuer=self._settings.user_jwt_issuer, audience=self._settings.user_jwt_audience,
            )  # fmt: skip
            user_id = _user_id(claims["sub"])
            return float(claims["exp"]), user_id, holder_of(self._settings.holder_keys, user_id)
        except jwt.ExpiredSignatureError as late:
            raise BadCredential("This token has expired; sign in again.") from late
        except UNREADABLE as broken:
            raise BadCredential from broken


def _user_id(sub: str) -> str:
    """A `sub` that every table and token can carry; raises `ValueError`."""
    if not 0 < len(sub) <= USER_ID_MAX_CHARS or "\0" in sub:
        raise ValueError("sub is empty, too long or has a NUL")
    sub.encode()  # half a surrogate pair cannot be stored
    return sub


def holder_of(keys: Keyring, user_id: str) -> str:
    """What a user is called in the line, in passes and orders: the same on every device, and nobody else's guess."""
    return HOLDER_PREFIX + b64(keys.mac("user", user_id))[:32]


@asynccontextmanager
async def signed_in(settings: ServiceSettings) -> AsyncIterator[Users]:
    """Reads users' JWTs inside this context, by the secret or by the provider's keys; by neither, it refuses all."""
    if settings.user_jwt_jwks_url is None:
        secret = settings.user_jwt_secret
        yield Users(settings, OneSecret(secret.get_secret_value()) if secret is not None else None)
        return
    async with outgoing(connections_max=1) as client:
        keys = ProviderKeys(
            client, settings.user_jwt_jwks_url, settings.believed_algorithms,
            refetch_s=settings.user_jwt_refetch_s, refresh_s=settings.user_jwt_refresh_s,
        )  # fmt: skip
        try:
            yield Users(settings, keys)
        finally:
            await keys.close()
