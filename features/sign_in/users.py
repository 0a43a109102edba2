"""Authenticates signed-in fans by the JWT of the seller's identity provider, and finds their places; verified tokens
are cached until they expire.

The algorithm is fixed by the settings and the type of key, never by the token: with a secret HS256 only, with public
keys the one algorithm of the named key. `iss`, `aud`, `exp`, `nbf` and `iat` are checked; `exp` and `sub` are required.

The queue is asked for places in batches by the fan's id. Two devices of one fan, served by two processes, find the same
place: it belongs to the fan, not to the device. So the absence of a place is never cached, as the fan may be joining
elsewhere, and a place only for a moment.
"""

import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple, Self

import jwt
import orjson
from cachetools import FIFOCache, TTLCache
from pydantic import Field, SecretStr, StringConstraints, model_validator
from pydantic_settings import BaseSettings

from features.sign_in.provider_keys import ProviderKeys, VerificationKey
from shared.concurrency.background import Loops
from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import BATCH_MAX, HoldersQuestion, PlaceFound, QueueClient
from shared.errors.problems import BadCredential, NotInQueue
from shared.http.outgoing import external_http_client
from shared.process.settings import Maybe, ServiceSettings
from shared.routes import Service
from shared.security.tokens import Keyring, QueueToken, b64, canonical_unb64, unb64
from shared.web.parts import Part

CACHE_TTL_S = 1.0
WAITING_MAX = 8_192  # fans of one event that may wait for the queue


class _Line(NamedTuple):
    """An event and the oldest epoch accepted."""

    event_id: str
    epoch_min: int


class UserPlaces:
    """The places of signed-in fans, as queue tokens that the fans need not carry."""

    def __init__(self, queue: QueueClient, service: str, cache_entries_max: int) -> None:
        self._queue = queue
        self._batches: KeyedBatches[_Line, str, QueueToken | None] = KeyedBatches(
            self._fetch, name=f"{service}.users", batch_max=BATCH_MAX, waiting_max=WAITING_MAX
        )
        self._cache: TTLCache[tuple[str, str], QueueToken] = TTLCache(cache_entries_max, CACHE_TTL_S)

    async def place(self, event_id: str, holder: str, *, epoch_min: int = 0) -> QueueToken:
        """Raises `NotInQueue`, `UnknownEvent`, `Unavailable`, `Overloaded`."""
        cached = self._cache.get((event_id, holder))
        if cached is not None and cached.epoch >= epoch_min:
            return cached
        place = await self._batches.submit(_Line(event_id, epoch_min), holder)
        if place is None:
            raise NotInQueue
        self.remember(place)
        return place

    def remember(self, place: QueueToken) -> None:
        """Caches a place, also one that this process just gave the fan."""
        self._cache[place.event_id, place.holder] = place

    async def _fetch(self, line: _Line, holders: list[str]) -> list[QueueToken | None]:
        unique = list(dict.fromkeys(holders))
        question = HoldersQuestion(event_id=line.event_id, epoch_min=line.epoch_min, holders=unique)
        answer = await self._queue.find(question)
        found = dict(zip(unique, answer.places, strict=True))
        return [_token(line.event_id, answer.epoch, holder, found[holder]) for holder in holders]

    async def close(self) -> None:
        await self._batches.close()


def _token(event_id: str, epoch: int, holder: str, found: PlaceFound | None) -> QueueToken | None:
    if found is None:
        return None
    return QueueToken(
        event_id=event_id, epoch=epoch, lane=found.lane, join_seq=found.join_seq, holder=holder,
        issued_at_s=int(time.time()),
    )  # fmt: skip


LEEWAY_S = 5
USER_ID_MAX_CHARS = 255
HOLDER_PREFIX = "user."
REMEMBERED_MAX = 65_536
UNREADABLE = (jwt.PyJWTError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


SECRET_BYTES_MIN = 32
Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$", max_length=2000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class SignInSettings(BaseSettings):
    """The identity provider that is trusted and its keys. Without them nobody can sign in.

    A secret means HS256 only, a JWKS URL public keys only. Setting both stops the start, so that no token can ever
    choose between them.
    """

    user_jwt_secret: Annotated[SecretStr | None, Maybe] = Field(
        None, description="Secret the seller signs users' JWTs with (HS256), at least 32 bytes."
    )
    user_jwt_jwks_url: Annotated[Address | None, Maybe] = Field(
        None, description="URL of the identity provider's public keys (JWKS)."
    )
    user_jwt_issuer: Annotated[Name | None, Maybe] = Field(None, description="Required `iss`; needed with JWKS.")
    user_jwt_audience: Annotated[Name | None, Maybe] = Field(
        None, description="Required value in `aud`; needed with JWKS."
    )

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if self.user_jwt_secret is not None:
            if self.user_jwt_jwks_url is not None:
                raise ValueError("user_jwt_secret and user_jwt_jwks_url exclude each other")
            if len(self.user_jwt_secret.get_secret_value().encode()) < SECRET_BYTES_MIN:
                raise ValueError(f"user_jwt_secret must have at least {SECRET_BYTES_MIN} bytes")
        if self.user_jwt_jwks_url is not None and not (self.user_jwt_issuer and self.user_jwt_audience):
            raise ValueError("user_jwt_jwks_url needs user_jwt_issuer and user_jwt_audience: a provider signs for many")
        return self


class JoinedSettings(SignInSettings, ServiceSettings):
    """The settings of a service, with these."""


class SignedIn(NamedTuple):
    """A `shared.security.tokens.User`. `text` is the token."""

    user_id: str
    holder: str
    text: str
    places: UserPlaces | None

    async def place(self, event_id: str, *, epoch_min: int = 0) -> QueueToken:
        """Raises `NotInQueue`, `UnknownEvent`, `Unavailable`, `Overloaded`."""
        assert self.places is not None, "orders asks for no places"
        return await self.places.place(event_id, self.holder, epoch_min=epoch_min)

    def remember(self, place: QueueToken) -> None:
        """Keeps a place that this process just gave the fan."""
        if self.places is not None:
            self.places.remember(place)

    @property
    def claims(self) -> dict[str, Any]:
        """All verified claims, for rules that need more than the user id."""
        claims: dict[str, Any] = json.loads(unb64(self.text.split(".")[1]))
        return claims


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
        self,
        settings: JoinedSettings,
        keys: ProviderKeys | SharedSecret | None,
        places: UserPlaces | None = None,
        *,
        cache_entries_max: int = REMEMBERED_MAX,
    ) -> None:
        self._settings, self._keys, self._places = settings, keys, places
        self._cache: FIFOCache[bytes, tuple[float, str, str]] = FIFOCache(cache_entries_max)
        self._generation = 0
        self._checks: Any = {"require": ["exp", "sub"], "verify_aud": settings.user_jwt_audience is not None,
                             "enforce_minimum_key_length": True}  # fmt: skip

    async def read(self, text: str) -> SignedIn:
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
        return SignedIn(user_id, holder, text, self._places)

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
async def user_jwt_reader(settings: JoinedSettings, places: UserPlaces | None = None) -> AsyncIterator[UserJwtReader]:
    """A reader with the secret or the provider's keys from the settings; without both, it rejects every token."""
    if settings.user_jwt_jwks_url is None:
        secret = settings.user_jwt_secret
        keys = SharedSecret(secret.get_secret_value()) if secret is not None else None
        yield UserJwtReader(settings, keys, places)
        return
    async with external_http_client(connections_max=1) as client:
        provider_keys = ProviderKeys(client, settings.user_jwt_jwks_url)
        try:
            yield UserJwtReader(settings, provider_keys, places)
        finally:
            await provider_keys.close()


def sign_in_part(service: Service, *, asks_for_places: bool = True) -> Part:
    """The part of a service. One that asks for places has the queue's client as `queue` in its state."""

    @asynccontextmanager
    async def open_sign_in(state: Any, _loops: Loops) -> AsyncIterator[UserJwtReader]:
        places = UserPlaces(state.queue, service, state.settings.cache_entries_max) if asks_for_places else None
        async with user_jwt_reader(state.settings, places) as reader:
            state.users.identify = reader.read
            yield reader
        if places is not None:
            await places.close()

    return Part(settings=SignInSettings, open=open_sign_in)
