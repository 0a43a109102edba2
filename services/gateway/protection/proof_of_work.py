"""Proof of work at the door, in ALTCHA's format: a signed challenge that is made for one holder.

Its solution therefore opens one place, however often and at whichever process it is shown: nothing has to be remembered
or asked to refuse a second one. Who has a live place is never asked.

How hard a room is pressed, by new fans a second at this process and by places that wait; the work follows.
"""

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import altcha
from starlette.types import Scope

from services.gateway.metrics import PROOFS
from services.gateway.problems import ProofOfWorkNeeded
from services.gateway.protection.identity import TokenReader, head
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.waiting_line.place_client import ENDED, PlaceClient
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import Join
from shared.contracts.room_options import FrictionRules
from shared.security.tokens import Keyring, QueueToken, b64
from shared.web.problems import StaleEpoch

REMEMBERED_S = 10.0


class ArrivalRate:
    """New fans per second and event, or per address of an event, as a fading count over about ten seconds; the latest
    `events_max` of them.
    """

    def __init__(self, *, events_max: int) -> None:
        self._counts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._events_max = events_max

    def note(self, whose: Hashable, *, now_s: float) -> None:
        self._counts[whose] = self._faded(whose, now_s) + 1, now_s
        self._counts.move_to_end(whose)
        if len(self._counts) > self._events_max:
            self._counts.popitem(last=False)

    def per_s(self, whose: Hashable, *, now_s: float) -> float:
        return self._faded(whose, now_s) / REMEMBERED_S

    def _faded(self, whose: Hashable, now_s: float) -> float:
        count, at_s = self._counts.get(whose, (0.0, now_s))
        return count * math.exp((at_s - now_s) / REMEMBERED_S)


def load_level(rules: FrictionRules, line: LineSnapshot, joins_per_s: float) -> float:
    """From 0 (nobody) to 1 (as busy as the room's rules call busy, or more)."""
    waiting = sum(max(0, at.tail_seq - line.heads[lane]) for lane, at in line.frame.lanes.items())
    return min(1.0, max(joins_per_s / rules.busy_joins_per_s, waiting / rules.busy_waiting))


def crowded(rules: FrictionRules, joins_per_s: float) -> float:
    """The pressure that one address makes: 0 up to its free newcomers, 1 at four times as many."""
    return min(1.0, max(0.0, joins_per_s * REMEMBERED_S / rules.address_joins - 1) / 3)


def hashes_needed(rules: FrictionRules, pressed: float, of_address: float = 0.0) -> int:
    """How many hashes a challenge may take at most; 0 when none is needed."""
    asked = {
        "off": False,
        "on": True,
        "by_pressure": pressed >= rules.from_pressure or of_address > 0,
        "by_address": of_address > 0,
    }
    if not asked[rules.proof_of_work]:
        return 0
    most = of_address if rules.proof_of_work == "by_address" else max(pressed, of_address)
    return rules.least_hashes + round((rules.most_hashes - rules.least_hashes) * most)


PROOF_HEADER = b"onsale-proof-of-work"
PROOF_MAX_CHARS = 2_048
ALGORITHM = "SHA-256"
WORDS = {
    "needed": "Solve the challenge and join again.",
    "malformed": "The proof of work could not be read.",
    "expired": "The proof of work came too late; here is a new challenge.",
    "forged": "The proof of work is for a challenge we did not make.",
    "unsolved": "The proof of work does not solve its challenge.",
    "other": "The proof of work is for another event or another fan.",
}


class InvalidProof(Exception):
    """A proof that does not count; `word` is a key of `WORDS`."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Challenges:
    """Makes challenges and reads their solutions; any process with the same keys can read what another made."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def make(self, event_id: str, holder: str, *, hashes: int, lasts_s: int) -> dict[str, Any]:
        """A challenge that takes one to `hashes` hashes."""
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

    def read(self, text: str, event_id: str) -> str:
        """The holder whose challenge for this event is solved here. Raises `InvalidProof`."""
        if len(text) > PROOF_MAX_CHARS:
            raise InvalidProof("malformed")
        try:
            payload = altcha.Payload.from_base64(text)
            data = dict(payload.challenge.parameters.data or {})
            kid = data.get("kid")
            if not isinstance(kid, str) or kid not in self._keys.keys:
                raise InvalidProof("forged")
            _require_solved(altcha.verify_solution(payload, self._secret(kid)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as broken:
            raise InvalidProof("malformed") from broken
        if data["event_id"] != event_id:
            raise InvalidProof("other")
        return str(data["holder"])

    def _secret(self, kid: str) -> str:
        return b64(self._keys.mac("proof-of-work", kid=kid))


def _require_solved(result: altcha.VerifySolutionResult) -> None:
    if result.expired:
        raise InvalidProof("expired")
    if result.invalid_signature:
        raise InvalidProof("forged")
    if not result.verified:
        raise InvalidProof("unsolved")


class JoinPolicy:
    """Lets a fan join as the room's friction says."""

    def __init__(
        self,
        identities: TokenReader,
        challenges: Challenges,
        arrivals: ArrivalRate,
        *,
        limits: RateLimits,
        places: PlaceClient,
    ) -> None:
        self._identities, self._challenges, self._arrivals = identities, challenges, arrivals
        self._limits, self._places = limits, places

    async def admit(self, scope: Scope, event_id: str, line: LineSnapshot, fan: Join) -> Join:
        """The fan as they may join: as they came, or as the holder of a solved challenge.

        Raises `ProofOfWorkNeeded` with a challenge.
        """
        if self._asks_nobody(scope, line):
            return fan
        shown = head(scope).get(PROOF_HEADER)
        token = self._identities.place_of(scope, event_id)
        hashes = self._hashes(scope, event_id, line, arrives=shown is None and token is None)
        if hashes == 0 or (token is not None and await self._lives(token)):
            return fan
        try:
            return self._proven(shown, event_id, fan)
        except InvalidProof as why:
            PROOFS.labels(why.word).inc()
            challenge = self._challenge(event_id, line, fan, hashes)
            raise ProofOfWorkNeeded(WORDS[why.word], reason=why.word, challenge=challenge) from why

    def challenge(self, scope: Scope, event_id: str, line: LineSnapshot, fan: Join) -> dict[str, Any] | None:
        """A challenge for this fan, `None` while none is needed."""
        if self._asks_nobody(scope, line):
            return None
        hashes = self._hashes(scope, event_id, line, arrives=True)
        return self._challenge(event_id, line, fan, hashes) if hashes else None

    def _asks_nobody(self, scope: Scope, line: LineSnapshot) -> bool:
        mode = line.frame.options.friction.proof_of_work
        return mode == "off" or (mode == "by_address" and self._limits.address_of(scope) is None)

    async def _lives(self, token: QueueToken) -> bool:
        """Whether this place still stands. One that has ended, or whose line was reset, spares nobody the work."""
        try:
            return (self._places.remembered(token) or await self._places.status(token)).status not in ENDED
        except StaleEpoch:
            return False

    def _hashes(self, scope: Scope, event_id: str, line: LineSnapshot, *, arrives: bool) -> int:
        """How much work the room wants at this moment; a fan who comes without a proof is counted as an arrival, of
        the room and of their address.
        """
        now_s, rules = time.monotonic(), line.frame.options.friction
        address = self._limits.address_of(scope)
        if arrives:
            self._arrivals.note(event_id, now_s=now_s)
            if address is not None:
                self._arrivals.note((event_id, address), now_s=now_s)
        of_room = load_level(rules, line, self._arrivals.per_s(event_id, now_s=now_s))
        of_address = crowded(rules, self._arrivals.per_s((event_id, address), now_s=now_s)) if address else 0.0
        return hashes_needed(rules, of_room, of_address)

    def _challenge(self, event_id: str, line: LineSnapshot, fan: Join, hashes: int) -> dict[str, Any]:
        lasts_s = line.frame.options.friction.solve_within_s
        return self._challenges.make(event_id, fan.holder, hashes=hashes, lasts_s=lasts_s)

    def _proven(self, shown: bytes | None, event_id: str, fan: Join) -> Join:
        if shown is None:
            raise InvalidProof("needed")
        holder = self._challenges.read(shown.decode("latin-1"), event_id)
        if fan.may_be_known and holder != fan.holder:
            raise InvalidProof("other")
        PROOFS.labels("solved").inc()
        return fan.model_copy(update={"holder": holder, "may_be_known": True})
