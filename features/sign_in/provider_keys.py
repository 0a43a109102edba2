"""The public keys of an identity provider, fetched from its JWKS URL: cached, rotated, and kept while it is
unreachable.

An unknown key triggers a fetch, at most one in `REFETCH_S`; the response is limited in time and size. A set without a
usable key is rejected. Symmetric keys are never accepted from it.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Literal

import jwt
import orjson
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from prometheus_client import Counter

from shared.concurrency.coalescing import SingleFlight
from shared.errors.problems import BadCredential, Unavailable
from shared.http.outgoing import ExternalHttpClient
from shared.runtime.logging import get_logger
from shared.runtime.metrics import with_series

Algorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]
log = get_logger("onsale.users")
FETCHES = with_series(
    Counter("onsale_user_keys_fetches_total", "Fetches of the identity provider's keys.", ["outcome"]),
    outcome=("fetched", "failed"),
)
DEADLINE_S = 3.0
REFETCH_S = 5.0  # least time between two fetches because of an unknown key
REFRESH_S = 300.0  # keys older than this are fetched again in the background
SET_MAX_BYTES = 256 * 1024
KEYS_MAX = 100
KID_MAX_CHARS = 255
_kinds: dict[tuple[str, str | None], tuple[Algorithm, Any]] = {
    ("RSA", None): ("RS256", RSAAlgorithm),
    ("EC", "P-256"): ("ES256", ECAlgorithm),
    ("OKP", "Ed25519"): ("EdDSA", OKPAlgorithm),
}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key and its only algorithm, which follows from the type of key and never from a token."""

    kid: str | None
    algorithm: Algorithm
    key: Any


class ProviderKeys:
    """The latest valid set of keys. `generation` rises whenever the set changes."""

    def __init__(self, client: ExternalHttpClient, url: str) -> None:
        self._client, self._url = client, url
        self._keys: list[VerificationKey] = []
        self._raw = b""
        self._last_fetch_s = self._fetched_s = float("-inf")
        self._failed = False
        self._fetches: SingleFlight[None] = SingleFlight()
        self.generation = 0

    async def find(self, algorithm: Any, kid: Any) -> VerificationKey:
        """The key a token names. Raises `BadCredential` if there is none, `Unavailable` if it could not be fetched."""
        key = self._pick(algorithm, kid)
        if key is None and (self._fetches or self._may_fetch()):
            await self._fetches.run("keys", self._fetch)
            key = self._pick(algorithm, kid)
        if key is None:
            if self._failed:
                raise Unavailable("The identity provider does not answer.")
            raise BadCredential("The identity provider does not publish the key that signed this token.")
        return key

    def refresh_if_old(self) -> None:
        """Fetches old keys again in the background."""
        if time.monotonic() - self._fetched_s > REFRESH_S and self._may_fetch():
            self._fetches.start("keys", self._fetch)

    def _pick(self, algorithm: Any, kid: Any) -> VerificationKey | None:
        matching = [key for key in self._keys if key.algorithm == algorithm]
        if kid is None:
            return matching[0] if len(matching) == 1 else None
        return next((key for key in matching if key.kid == kid), None)

    def _may_fetch(self) -> bool:
        """Whether the last fetch began long enough ago."""
        return time.monotonic() - self._last_fetch_s >= REFETCH_S

    async def _fetch(self) -> None:
        self._last_fetch_s = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_S):
                raw = await self._read()
            keys = parse(raw)
        except (TimeoutError, ConnectionError, ValueError) as failed:
            self._failed = True
            FETCHES.labels("failed").inc()
            log.warning("user_keys.failed", error=repr(failed), keys_kept=len(self._keys))
        else:
            self._failed, self._fetched_s = False, time.monotonic()
            FETCHES.labels("fetched").inc()
            if raw != self._raw:
                self._raw, self._keys = raw, keys
                self.generation += 1

    async def _read(self) -> bytes:
        answer = await self._client.request(
            "GET", self._url, headers={"accept": "application/json"}, timeout_s=DEADLINE_S,
            answer_max_bytes=SET_MAX_BYTES,
        )  # fmt: skip
        if answer.status_code != 200:
            raise ValueError(f"the provider answered {answer.status_code}")
        return answer.content

    async def close(self) -> None:
        """Cancels a running fetch."""
        await self._fetches.close()


def parse(raw: bytes) -> list[VerificationKey]:
    """The usable keys of a JWK set; raises `ValueError` if it has none."""
    listed = orjson.loads(raw)
    members = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(members, list):
        raise ValueError("not a JWK set")
    keys = [key for member in members[:KEYS_MAX] if (key := _public_key(member))]
    if not keys:
        raise ValueError("a JWK set without a usable key")
    return keys


def _public_key(member: Any) -> VerificationKey | None:
    """One member as a key; `None` if it is not for signatures that we accept."""
    if not isinstance(member, dict) or "d" in member or member.get("use", "sig") != "sig":
        return None
    kid = member.get("kid")
    curve = None if member.get("kty") == "RSA" else member.get("crv")
    try:
        algorithm, kind = _kinds[member["kty"], curve]
        if member.get("alg", algorithm) != algorithm or not (kid is None or 0 < len(kid) <= KID_MAX_CHARS):
            return None
        return VerificationKey(kid, algorithm, kind.from_jwk(member))
    except (KeyError, TypeError, ValueError, jwt.PyJWTError):
        return None
