"""The public keys of an identity provider, as its JWKS address shows them: cached, rotated, and kept when it is away.

An unknown key makes us ask again, at most once in `refetch_s` however many ask; what comes back is bounded in time and
size. A set without one usable key is no set. Symmetric keys are never taken from it.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

import jwt
import orjson
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from prometheus_client import Counter

from shared.rpc.outgoing import Outgoing
from shared.runtime.logging import data
from shared.security.user_settings import Algorithm
from shared.web.problems import BadCredential, Unavailable

log = logging.getLogger("onsale.users")
FETCHES = Counter("onsale_user_keys_fetches_total", "Times the identity provider's keys were asked for.", ["outcome"])
DEADLINE_S = 3.0
SET_MAX_BYTES = 256 * 1024
KEYS_MAX = 100
KID_MAX_CHARS = 255
_kinds: dict[tuple[str, str | None], tuple[Algorithm, Any]] = {
    ("RSA", None): ("RS256", RSAAlgorithm),
    ("EC", "P-256"): ("ES256", ECAlgorithm),
    ("OKP", "Ed25519"): ("EdDSA", OKPAlgorithm),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key and the one algorithm it is for, which follows from its kind and never from a token."""

    kid: str | None
    algorithm: Algorithm
    key: Any


class ProviderKeys:
    """The latest good set of keys. `generation` rises whenever the set is another one."""

    def __init__(
        self,
        client: Outgoing,
        url: str,
        algorithms: tuple[Algorithm, ...],
        *,
        refetch_s: float,
        refresh_s: float,
    ) -> None:
        self._client, self._url, self._algorithms = client, url, algorithms
        self._refetch_s, self._refresh_s = refetch_s, refresh_s
        self._keys: list[PublicKey] = []
        self._raw = b""
        self._asked_s = self._fetched_s = float("-inf")
        self._away = False
        self._fetching: asyncio.Task[None] | None = None
        self.generation = 0

    async def find(self, algorithm: Any, kid: Any) -> PublicKey:
        """The key a token names. Raises `BadCredential` if there is none, `Unavailable` if nobody could tell us."""
        found = self._pick(algorithm, kid)
        if found is None and self._ask():
            assert self._fetching is not None
            await asyncio.shield(self._fetching)
            found = self._pick(algorithm, kid)
        if found is None:
            if self._away:
                raise Unavailable("The identity provider does not answer.")
            raise BadCredential("This token is signed by a key that the identity provider does not show.")
        return found

    def freshen(self) -> None:
        """Asks again for keys that have grown old; nobody waits for it."""
        if time.monotonic() - self._fetched_s > self._refresh_s:
            self._ask()

    def _pick(self, algorithm: Any, kid: Any) -> PublicKey | None:
        fit = [key for key in self._keys if key.algorithm == algorithm]
        if kid is None:
            return fit[0] if len(fit) == 1 else None
        return next((key for key in fit if key.kid == kid), None)

    def _ask(self) -> bool:
        """Whether a fetch is under way, started now if it may be."""
        if self._fetching is None and time.monotonic() - self._asked_s >= self._refetch_s:
            self._asked_s = time.monotonic()
            self._fetching = asyncio.create_task(self._fetch(), name="user-keys")
        return self._fetching is not None

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                raw = await self._read()
            keys = parse(raw, self._algorithms)
        except (TimeoutError, ConnectionError, ValueError) as failed:
            self._away = True
            FETCHES.labels("failed").inc()
            log.warning("user_keys.failed", extra=data(error=repr(failed), keys_kept=len(self._keys)))
        else:
            self._away, self._fetched_s = False, time.monotonic()
            FETCHES.labels("fetched").inc()
            if raw != self._raw:
                self._raw, self._keys = raw, keys
                self.generation += 1
        finally:
            self._fetching = None

    async def _read(self) -> bytes:
        answer = await self._client.request(
            "GET", self._url, headers={"accept": "application/json"}, timeout_s=DEADLINE_S,
            answer_max_bytes=SET_MAX_BYTES,
        )  # fmt: skip
        if answer.status_code != 200:
            raise ValueError(f"the provider answered {answer.status_code}")
        return answer.content

    async def close(self) -> None:
        """Ends a fetch nobody needs any more."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)


def parse(raw: bytes, algorithms: tuple[Algorithm, ...]) -> list[PublicKey]:
    """The keys of a set that are of use; raises `ValueError` if it has none."""
    listed = orjson.loads(raw)
    members = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(members, list):
        raise ValueError("not a JWK set")
    keys = [key for member in members[:KEYS_MAX] if (key := _public_key(member)) and key.algorithm in algorithms]
    if not keys:
        raise ValueError("a JWK set without a usable key")
    return keys


def _public_key(member: Any) -> PublicKey | None:
    """One member as a key, or nothing: a provider may list what is not for us."""
    if not isinstance(member, dict) or "d" in member or member.get("use", "sig") != "sig":
        return None
    kid = member.get("kid")
    curve = None if member.get("kty") == "RSA" else member.get("crv")
    try:
        algorithm, kind = _kinds[member["kty"], curve]
        if member.get("alg", algorithm) != algorithm or not (kid is None or 0 < len(kid) <= KID_MAX_CHARS):
            return None
        return PublicKey(kid, algorithm, kind.from_jwk(member))
    except (KeyError, TypeError, ValueError, jwt.PyJWTError):
        return None
