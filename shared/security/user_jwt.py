"""Authenticates signed-in fans by the JWT of the seller's identity provider; verified tokens are cached until they
expire.

The algorithm is fixed by the settings and the type of key, never by the token: with a secret HS256 only, with public
keys the one algorithm of the named key. `iss`, `aud`, `exp`, `nbf` and `iat` are checked; `exp` and `sub` are required.
"""

import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import jwt
import orjson
from cachetools import FIFOCache

from shared.errors.problems import BadCredential
from shared.http.outgoing import external_http_client
from shared.security.jwks_client import ProviderKeys, VerificationKey
from shared.security.tokens import Keyring, b64, canonical_unb64, unb64
from shared.security.user_settings import UserSettings

LEEWAY_S = 5
USER_ID_MAX_CHARS = 255
HOLDER_PREFIX = "user."
REMEMBERED_MAX = 65_536
UNREADABLE = (jwt.PyJWTError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


class User(NamedTuple):
    """A signed-in fan: the provider's user id, and the holder id derived from it."""

    user_id: str
    holder: str
    text: str

    @property
    def claims(self) -> dict[str, Any]:
        """All verified claims, for rules that need more than the user id."""
        claims: dict[str, Any] = json.loads(unb64(self.text.split(".")[1]))
        return claims


class KeySource(Protocol):
    """Finds the key that verifies a token."""

    generation: int

    async def find(self, algorithm: Any, kid: Any) -> VerificationKey: ...
    def refresh_if_old(self) -> None: ...


class SharedSecret:
    """The seller's secret, for HS256 only; `kid` is ignored."""

    def __init__(self, secret: str) -> None:
        self._key = VerificationKey(None, "HS256", secret.encode())
        self.generation = 0

    async def find(self, algorithm: Any, kid: Any) -> VerificationKey:
        if algorithm != "HS256":
            raise BadCredential
        return self._key

    def refresh_if_old(self) -> None:
        """A secret does not expire."""


class UserJwtReader:
    """Verifies users' JWTs. Verified ones are cached by their hash until the keys change."""

    def __init__(
        self, settings: UserSettings, keys: KeySource | None, *, cache_entries_max: int = REMEMBERED_MAX
    ) -> None:
        self._settings, self._keys = settings, keys
        self._cache: FIFOCache[bytes, tuple[float, str, str]] = FIFOCache(cache_entries_max)
        self._generation = 0
        self._checks: Any = {"require": ["exp", "sub"], "verify_aud": settings.user_jwt_audience is not None,
                             "enforce_minimum_key_length": True}  # fmt: skip

    async def read(self, text: str) -> User:
        """Raises `BadCredential` for an invalid token, `Unavailable` while its key cannot be fetched."""
        if self._keys is None:
            raise BadCredential
        self._keys.refresh_if_old()
        if self._generation != self._keys.generation:  # tokens of a withdrawn key are no longer accepted
            self._generation = self._keys.generation
            self._cache.clear()
        name = hashlib.sha256(text.encode(errors="replace")).digest()
        known = self._cache.get(name)
        if known is None:
            known = await self._verify(text)
            self._cache[name] = known
        expires_at_s, user_id, holder = known
        if time.time() >= expires_at_s + LEEWAY_S:
            raise BadCredential("This token has expired; sign in again.")
        return User(user_id, holder, text)

    async def _verify(self, text: str) -> tuple[float, str, str]:
        assert self._keys is not None
        try:
            header = orjson.loads(unb64(text.split(".", 1)[0]))
            canonical_unb64(
                text.rpartition(".")[2]
            )  # other encodings of one signature would count as other fans at a balancer
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
    """A `sub` that fits every table and token; raises `ValueError`."""
    if not 0 < len(sub) <= USER_ID_MAX_CHARS or "\0" in sub:
        raise ValueError("sub is empty, too long or has a NUL")
    sub.encode()  # a lone surrogate cannot be stored
    return sub


def holder_of(keys: Keyring, user_id: str) -> str:
    """The id of a user in the line, in passes and orders: the same on every device, and unguessable for others."""
    return HOLDER_PREFIX + b64(keys.mac("user", user_id))[:32]


@asynccontextmanager
async def user_jwt_reader(settings: UserSettings) -> AsyncIterator[UserJwtReader]:
    """A reader with the secret or the provider's keys from the settings; without both, it rejects every token."""
    if settings.user_jwt_jwks_url is None:
        secret = settings.user_jwt_secret
        yield UserJwtReader(settings, SharedSecret(secret.get_secret_value()) if secret is not None else None)
        return
    async with external_http_client(connections_max=1) as client:
        keys = ProviderKeys(client, settings.user_jwt_jwks_url)
        try:
            yield UserJwtReader(settings, keys)
        finally:
            await keys.close()
