"""Proof of work before joining, in ALTCHA's format: each signed challenge is made for one holder.

A solution is therefore good for one place, however often and at whichever process it is used, without any stored
state. Fans with a live place need none. The number of hashes follows the load: joins per second, of which this process
sees its part, and fans who wait.
"""

import math
import secrets
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import altcha
from cachetools import LRUCache
from starlette.types import Scope

from services.gateway.metrics import PROOFS
from services.gateway.problems import ProofOfWorkNeeded
from services.gateway.protection.entry_delay import EntryDelays
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS
from services.gateway.waiting_line.place_client import ENDED_STATES, PlaceClient
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import JoinRequest
from shared.contracts.room_options import FrictionRules
from shared.errors.problems import StaleEpoch
from shared.security.tokens import Keyring, QueueToken, b64, header_fields
from shared.web.request import FormFields

DECAY_S = 10.0


class ArrivalRate:
    """New fans per second of an event, or of one address at an event, as an exponentially decayed count over about ten
    seconds; keeps the latest `events_max` keys. `part` is the share of all fans that is counted here.
    """

    def __init__(self, *, events_max: int, part: float = 1.0) -> None:
        self._part = part
        self._counts: LRUCache[Hashable, tuple[float, float]] = LRUCache(events_max)

    def record(self, key: Hashable, *, now_s: float) -> None:
        self._counts[key] = self._decayed(key, now_s) + 1, now_s

    def take_back(self, key: Hashable, *, at_s: float, now_s: float) -> None:
        """Uncounts what was recorded at `at_s`."""
        self._counts[key] = max(0.0, self._decayed(key, now_s) - math.exp((at_s - now_s) / DECAY_S)), now_s

    def per_s(self, key: Hashable, *, now_s: float) -> float:
        return self._decayed(key, now_s) / DECAY_S / self._part

    def _decayed(self, key: Hashable, now_s: float) -> float:
        count, at_s = self._counts.get(key, (0.0, now_s))
        return count * math.exp((at_s - now_s) / DECAY_S)


def load_level(rules: FrictionRules, line: LineSnapshot, joins_per_s: float) -> float:
    """From 0 (idle) to 1 (as busy as the room's rules define busy, or more)."""
    waiting = sum(max(0, at.tail_seq - line.heads[lane]) for lane, at in line.frame.lanes.items())
    return min(1.0, max(joins_per_s / rules.busy_joins_per_s, waiting / rules.busy_waiting))


def address_load(rules: FrictionRules, joins_per_s: float) -> float:
    """The load of one address: 0 up to its free number of new fans, 1 at four times as many."""
    return min(1.0, max(0.0, joins_per_s * DECAY_S / rules.address_joins - 1) / 3)


def hashes_needed(rules: FrictionRules, room_load: float, of_address: float = 0.0) -> int:
    """How many hashes a challenge takes at most; 0 if none is required."""
    needed = {
        "off": False,
        "on": True,
        "by_pressure": room_load >= rules.from_pressure or of_address > 0,
        "by_address": of_address > 0,
    }
    if not needed[rules.proof_of_work]:
        return 0
    load = of_address if rules.proof_of_work == "by_address" else max(room_load, of_address)
    return rules.least_hashes + round((rules.most_hashes - rules.least_hashes) * load)


PROOF_HEADER = b"onsale-proof-of-work"
PROOF_MAX_CHARS = 2_048
ALGORITHM = "SHA-256"
MESSAGES = {
    "needed": "Solve the challenge and join again.",
    "malformed": "The proof of work could not be read. Solve the new challenge.",
    "expired": "The proof of work came too late. Solve the new challenge.",
    "forged": "The challenge of this proof of work is not ours. Solve the new challenge.",
    "unsolved": "The proof of work does not solve its challenge. Solve the new challenge.",
    "other": "The proof of work is for another event or another fan. Solve the new challenge.",
}


class InvalidProof(Exception):
    """An invalid proof; `reason` is a key of `MESSAGES`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Challenges:
    """Creates challenges and verifies solutions; every process with the same keys verifies those of the others."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def create(self, event_id: str, holder: str, *, hashes: int, lasts_s: int) -> dict[str, Any]:
        """A challenge that takes 1 to `hashes` hashes and is valid for `lasts_s` seconds."""
        kid = self._keys.kid
        challenge = altcha.create_challenge(
            ALGORITHM,
            cost=1,
            counter=1 + secrets.randbelow(hashes),
            expires_at=int(time.time()) + lasts_s,
            data={"event_id": event_id, "holder": holder, "hashes": hashes, "kid": kid},
            hmac_secret=self._secret(kid),
        )
        return challenge.to_dict()

    def verify(self, text: str, event_id: str) -> str:
        """The holder whose challenge for this event this text solves. Raises `InvalidProof`."""
        if len(text) > PROOF_MAX_CHARS:
            raise InvalidProof("malformed")
        try:
            payload = altcha.Payload.from_base64(text)
            data = dict(payload.challenge.parameters.data or {})
            kid = data.get("kid")
            if not isinstance(kid, str) or kid not in self._keys.keys:
                raise InvalidProof("forged")
            result = altcha.verify_solution(payload, self._secret(kid))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as broken:
            raise InvalidProof("malformed") from broken
        if not result.verified:
            raise InvalidProof("expired" if result.expired else "forged" if result.invalid_signature else "unsolved")
        if data["event_id"] != event_id:
            raise InvalidProof("other")
        return str(data["holder"])

    def _secret(self, kid: str) -> str:
        return b64(self._keys.mac("proof-of-work", kid=kid))


@dataclass(slots=True)
class Arrival:
    """A request that may become a new fan of the line."""

    is_new_fan: bool = False


class JoinPolicy:
    """Requires proofs of work according to the room's `friction` rules.

    New fans alone count towards the load, and each from the moment their request comes: who asks for challenges, is
    refused or has a place already leaves the work of all others as it is.
    """

    def __init__(
        self, settings: Settings, token_reader: TokenReader, rate_limits: RateLimits, place_client: PlaceClient
    ) -> None:
        self._challenges = Challenges(settings.queue_token_keys)
        self._arrivals = ArrivalRate(events_max=DEFAULTS.rate_limit_keys_max, part=1 / settings.processes)
        self.entry_delays = EntryDelays(
            settings.queue_token_keys, addresses_max=DEFAULTS.rate_limit_keys_max, processes=settings.processes
        )
        self._token_reader, self._rate_limits, self._place_client = token_reader, rate_limits, place_client

    @contextmanager
    def arrival(self, scope: Scope, event_id: str, line: LineSnapshot) -> Iterator[Arrival]:
        """Counts a new fan of the room and of the address, and uncounts them unless they were one."""
        address = self._rate_limits.address_of(scope)
        keys: list[Hashable] = [event_id] if address is None else [event_id, (event_id, address)]
        keys = [] if self.is_off(scope, line) else keys
        arrived, at_s = Arrival(), time.monotonic()
        for key in keys:
            self._arrivals.record(key, now_s=at_s)
        try:
            yield arrived
        finally:
            if not arrived.is_new_fan:
                for key in keys:
                    self._arrivals.take_back(key, at_s=at_s, now_s=time.monotonic())

    async def require_proof(
        self, scope: Scope, event_id: str, line: LineSnapshot, fan: JoinRequest, *, form: FormFields | None = None
    ) -> JoinRequest:
        """The fan who may join: unchanged if no proof is required, else with the holder of the solved challenge. Raises
        `ProofOfWorkNeeded` with a challenge; for a form, `EntryDelayed` until its wait is over.
        """
        if self.is_off(scope, line):
            return fan
        proof = header_fields(scope).get(PROOF_HEADER)
        token = self._token_reader.place_token(scope, event_id)
        entry = form.one("entry") if form else None
        hashes = self._required_hashes(scope, event_id, line)
        if hashes == 0 or (token is not None and await self._is_live(token)):
            return fan
        if form is not None:
            address = self._rate_limits.address_of(scope)
            self.entry_delays.require(event_id, fan, entry, hashes=hashes, address=address)
            return fan
        try:
            return self._verify(proof, event_id, fan)
        except InvalidProof as invalid:
            PROOFS.labels(invalid.reason).inc()
            challenge = self._create_challenge(event_id, line, fan, hashes)
            raise ProofOfWorkNeeded(MESSAGES[invalid.reason], reason=invalid.reason, challenge=challenge) from invalid

    def challenge(self, scope: Scope, event_id: str, line: LineSnapshot, fan: JoinRequest) -> dict[str, Any] | None:
        """A challenge for this fan; `None` while none is required."""
        if self.is_off(scope, line):
            return None
        with self.arrival(scope, event_id, line):
            hashes = self._required_hashes(scope, event_id, line)
        return self._create_challenge(event_id, line, fan, hashes) if hashes else None

    def is_off(self, scope: Scope, line: LineSnapshot) -> bool:
        """Whether this fan needs no proof, whatever the load."""
        mode = line.frame.options.friction.proof_of_work
        return mode == "off" or (mode == "by_address" and self._rate_limits.address_of(scope) is None)

    async def _is_live(self, token: QueueToken) -> bool:
        """Whether this place is live: neither ended nor from before a reset of the line."""
        try:
            place = self._place_client.cached_status(token) or await self._place_client.status(token)
        except StaleEpoch:
            return False
        return place.status not in ENDED_STATES

    def _required_hashes(self, scope: Scope, event_id: str, line: LineSnapshot) -> int:
        """How many hashes the room requires now of this address."""
        now_s, rules = time.monotonic(), line.frame.options.friction
        address = self._rate_limits.address_of(scope)
        room_load = load_level(rules, line, self._arrivals.per_s(event_id, now_s=now_s))
        of_address = address_load(rules, self._arrivals.per_s((event_id, address), now_s=now_s)) if address else 0.0
        return hashes_needed(rules, room_load, of_address)

    def _create_challenge(self, event_id: str, line: LineSnapshot, fan: JoinRequest, hashes: int) -> dict[str, Any]:
        lasts_s = line.frame.options.friction.solve_within_s
        return self._challenges.create(event_id, fan.holder, hashes=hashes, lasts_s=lasts_s)

    def _verify(self, proof: bytes | None, event_id: str, fan: JoinRequest) -> JoinRequest:
        if proof is None:
            raise InvalidProof("needed")
        holder = self._challenges.verify(proof.decode("latin-1"), event_id)
        if fan.may_be_known and holder != fan.holder:
            raise InvalidProof("other")
        PROOFS.labels("solved").inc()
        return fan.model_copy(update={"holder": holder, "may_be_known": True})
