"""Proof of work before joining, in ALTCHA's format: each signed challenge is made for one holder.

A solution is therefore good for one place, however often and at whichever process it is used, without any stored
state. Fans with a live place need none. The number of hashes follows the load: joins per second, of which this process
sees its part, and fans who wait.
"""

import hmac
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import altcha
from cachetools import LRUCache
from prometheus_client import Counter
from pydantic import BaseModel

from features.proof_of_work.rules import FrictionRules, RoomFriction
from services.gateway.api.queue import (
    IDEMPOTENCY_KEY,
    PLACE_CREDENTIALS,
    QUEUE_PATH,
    UNKNOWN_EVENT,
    context,
    identify,
)
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS
from services.gateway.waiting_line.place_client import ENDED_STATES
from shared.concurrency.background import Loops
from shared.contracts.file_parts import part_of
from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinRequest
from shared.errors.problems import Problem, StaleEpoch, TooManyRequests
from shared.runtime.metrics import with_series
from shared.security.tokens import Keyring, QueueToken, b64
from shared.web.answers import NO_STORE, Answer, json_answer
from shared.web.before_join import JoinAttempt
from shared.web.fast_routes import FastRoute
from shared.web.parts import Part
from shared.web.request import Request

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


def _rules(frame: LineFrame) -> FrictionRules:
    return part_of(frame.options, RoomFriction).friction


def load_level(rules: FrictionRules, frame: LineFrame, joins_per_s: float) -> float:
    """From 0 (idle) to 1 (as busy as the room's rules define busy, or more)."""
    waiting = sum(max(0, at.tail_seq - at.head_seq) for at in frame.lanes.values())
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
PROOFS = with_series(
    Counter("gateway_proofs_of_work_total", "Proofs of work required or checked, by outcome.", ["outcome"]),
    outcome=(*MESSAGES, "solved"),
)


class ProofOfWorkNeeded(Problem, status=428):
    """This line requires a proof of work. Solve the challenge and join again."""


class InvalidProof(Exception):
    """An invalid proof; its text is a key of `MESSAGES`."""


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

    def verify(self, text: str | None, event_id: str) -> str:
        """The holder whose challenge for this event this text solves. Raises `InvalidProof`."""
        if text is None or len(text) > PROOF_MAX_CHARS:
            raise InvalidProof("needed" if text is None else "malformed")
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


# -- a wait in place of a proof ----------------------------------------------------------------------------------------
#
# Fans without scripts give a wait. The first join is answered with a signed not-before time, as far away as the proof
# would take on a slow phone. It is made for one holder, who is derived from the browser's secret cookie, so one wait is
# good for one place, however often and at whichever process the form is sent. An attacker who waits needs no processor,
# so only `WAITS_MAX` fans of one address wait at a time: fewer places a second than one core of a desktop computer
# proves.

SLOW_PHONE_HASHES_PER_S, DELAY_MAX_S = 20_000, 30
WAITS_MAX = 16
USE_WITHIN_S = 300
_token = re.compile(r"([A-Za-z0-9_-]{1,32})\.([0-9]{1,12})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
ENTRY_DELAYS = with_series(
    Counter("gateway_entry_delays_total", "Waits before joining, of fans without scripts, by outcome.", ["outcome"]),
    outcome=("started", "early", "invalid", "waited"),
)


class EntryDelayed(Problem, status=428):
    """This line lets fans without scripts in after a wait. Wait, then join again with the same form."""


def delay_s(hashes: int) -> int:
    """How long a slow phone computes so many hashes, at most `DELAY_MAX_S`."""
    return max(1, min(DELAY_MAX_S, math.ceil(hashes / SLOW_PHONE_HASHES_PER_S)))


class EntryDelays:
    """Signs not-before times and checks them; every process with the same keys checks those of the others. At most this
    process' part of `WAITS_MAX` fans of an address wait at a time, each for its own delay.
    """

    def __init__(self, keys: Keyring, *, addresses_max: int, processes: int = 1) -> None:
        self._keys, self._most = keys, math.ceil(WAITS_MAX / processes)
        self._ends: LRUCache[str | None, list[float]] = LRUCache(addresses_max)

    def require(self, event_id: str, fan: JoinRequest, token: str | None, *, hashes: int, address: str | None) -> None:
        """Raises `EntryDelayed` with a token until its time has come, `TooManyRequests` if too many of the address
        wait. A token that was forged, has expired or was made for another fan counts as none.
        """
        not_before_s = self._not_before_s(event_id, fan.holder, token)
        if not_before_s is not None and time.time() >= not_before_s:
            ENTRY_DELAYS.labels("waited").inc()
            return
        if not_before_s is None:
            ENTRY_DELAYS.labels("started" if token is None else "invalid").inc()
            lasts_s = delay_s(hashes)
            self._begin(address, lasts_s=lasts_s)
            not_before_s = math.ceil(time.time()) + lasts_s
            token = self._sign(event_id, fan.holder, not_before_s)
        else:
            ENTRY_DELAYS.labels("early").inc()
        raise EntryDelayed(entry=token, retry_after_s=max(1, math.ceil(not_before_s - time.time())))

    def _begin(self, address: str | None, *, lasts_s: int) -> None:
        """Raises `TooManyRequests`. Fans whose address is unknown count as one address."""
        now_s = time.monotonic()
        ends = [end_s for end_s in self._ends.get(address, []) if end_s > now_s]
        if len(ends) >= self._most:
            self._ends[address] = ends
            raise TooManyRequests(retry_after_s=max(1, math.ceil(min(ends) - now_s)))
        self._ends[address] = [*ends, now_s + lasts_s]

    def _sign(self, event_id: str, holder: str, not_before_s: int) -> str:
        kid, expires_s = self._keys.kid, not_before_s + USE_WITHIN_S
        return f"{kid}.{not_before_s}.{expires_s}.{self._mac(kid, event_id, holder, f'{not_before_s}.{expires_s}')}"

    def _mac(self, kid: str, event_id: str, holder: str, times: str) -> str:
        return b64(self._keys.mac("entry-delay", event_id, holder, times, kid=kid))

    def _not_before_s(self, event_id: str, holder: str, token: str | None) -> int | None:
        found = _token.fullmatch(token or "")
        if found is None:
            return None
        kid, not_before_s, expires_s, mac = found.groups()
        if kid not in self._keys.keys or int(expires_s) < time.time():
            return None
        genuine = self._mac(kid, event_id, holder, f"{not_before_s}.{expires_s}")
        return int(not_before_s) if hmac.compare_digest(mac, genuine) else None


# -- at each join ------------------------------------------------------------------------------------------------------


class JoinPolicy:
    """Requires proofs of work according to the room's `friction` rules.

    New fans alone count towards the load, and each from the moment their request comes: who asks for challenges, is
    refused or has a place already leaves the work of all others as it is.
    """

    def __init__(self, state: State) -> None:
        keys, processes = state.settings.queue_token_keys, state.settings.processes
        self._challenges = Challenges(keys)
        self._arrivals = ArrivalRate(events_max=DEFAULTS.rate_limit_keys_max, part=1 / processes)
        self._entry_delays = EntryDelays(keys, addresses_max=DEFAULTS.rate_limit_keys_max, processes=processes)
        self._token_reader, self._place_client = state.token_reader, state.place_client
        self._address_of = state.rate_limits.address_of

    def wants(self, request: Request, frame: LineFrame) -> bool:
        """Whether this fan may need a proof; it depends on the load."""
        mode = _rules(frame).proof_of_work
        return mode != "off" and (mode != "by_address" or self._address_of(request.scope) is not None)

    @asynccontextmanager
    async def joining(self, attempt: JoinAttempt) -> AsyncIterator[None]:
        """Counts the fan, who needs a proof if one is required, and gets the holder of the solved challenge. Raises
        `ProofOfWorkNeeded` with a challenge; for a form, `EntryDelayed` until its wait is over.
        """
        with self._counted(attempt) as hashes:
            await self._require_proof(attempt, hashes)
            yield

    def challenge(self, attempt: JoinAttempt) -> dict[str, Any] | None:
        """A challenge for this fan; `None` while none is required."""
        with self._counted(attempt) as hashes:
            return self._create_challenge(attempt, hashes) if hashes else None

    @contextmanager
    def _counted(self, attempt: JoinAttempt) -> Iterator[int]:
        """Counts a new fan of the room and of the address, and uncounts them unless they were one. Yields how many
        hashes the room now requires of this address.
        """
        event_id, rules = attempt.frame.event_id, _rules(attempt.frame)
        address, at_s = self._address_of(attempt.request.scope), time.monotonic()
        of_room, of_address = keys = event_id, (event_id, address)
        for key in keys:
            self._arrivals.record(key, now_s=at_s)
        try:
            room_load = load_level(rules, attempt.frame, self._arrivals.per_s(of_room, now_s=at_s))
            swarm = address_load(rules, self._arrivals.per_s(of_address, now_s=at_s)) if address else 0.0
            yield hashes_needed(rules, room_load, swarm)
        finally:
            if not attempt.is_new:
                for key in keys:
                    self._arrivals.take_back(key, at_s=at_s, now_s=time.monotonic())

    async def _require_proof(self, attempt: JoinAttempt, hashes: int) -> None:
        request, event_id, fan = attempt.request, attempt.frame.event_id, attempt.fan
        token = self._token_reader.place_token(request.scope, event_id)
        if hashes == 0 or (token is not None and await self._is_live(token)):
            return
        if request.form is not None:
            entry, address = request.form.get("entry"), self._address_of(request.scope)
            self._entry_delays.require(event_id, fan, entry, hashes=hashes, address=address)
            return
        try:
            holder = self._challenges.verify(request.header(PROOF_HEADER), event_id)
            if fan.may_be_known and holder != fan.holder:
                raise InvalidProof("other")
        except InvalidProof as invalid:
            PROOFS.labels(reason := str(invalid)).inc()
            challenge = self._create_challenge(attempt, hashes)
            raise ProofOfWorkNeeded(MESSAGES[reason], reason=reason, challenge=challenge) from invalid
        PROOFS.labels("solved").inc()
        attempt.fan = fan.model_copy(update={"holder": holder, "may_be_known": True})

    async def _is_live(self, token: QueueToken) -> bool:
        """Whether this place is live: neither ended nor from before a reset of the line."""
        try:
            place = self._place_client.cached_status(token) or await self._place_client.status(token)
        except StaleEpoch:
            return False
        return place.status not in ENDED_STATES

    def _create_challenge(self, attempt: JoinAttempt, hashes: int) -> dict[str, Any]:
        frame, lasts_s = attempt.frame, _rules(attempt.frame).solve_within_s
        return self._challenges.create(frame.event_id, attempt.fan.holder, hashes=hashes, lasts_s=lasts_s)


class ChallengeAnswer(BaseModel):
    """A challenge of ALTCHA: find the number whose hash begins with the key prefix in `parameters`."""

    parameters: dict[str, Any]
    signature: str


async def challenge(request: Request) -> Answer:
    """A challenge in advance of joining; 204 while the room requires none."""
    state, event_id = context(request)
    fan, _ = await identify(state, request.scope, event_id)
    line = await state.line_cache.line(event_id)
    made = request.part(JoinPolicy).challenge(JoinAttempt(request, line.frame, fan))
    return Answer(204, b"", (NO_STORE,)) if made is None else json_answer(made)


@asynccontextmanager
async def open_policy(state: State, loops: Loops) -> AsyncIterator[JoinPolicy]:
    """Looks at each join from now on."""
    policy = JoinPolicy(state)
    state.before_join.append(policy)
    yield policy


PART = Part(
    fast_routes=[
        FastRoute(
            "GET", f"{QUEUE_PATH}/challenge", challenge, tag="line", summary="Get a proof-of-work challenge",
            security=[{}, *PLACE_CREDENTIALS], parameters=[IDEMPOTENCY_KEY], refusals=UNKNOWN_EVENT,
            answers={200: ("ALTCHA's challenge", ChallengeAnswer), 204: ("None is required", None)},
        )
    ],
    open=open_policy,
)  # fmt: skip
