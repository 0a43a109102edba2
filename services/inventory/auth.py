"""Authentication of fans: by a pass for this event, a queue token or a user JWT.

To reserve, a fan with a queue token or user JWT is given their pass on the way, in the response headers. To read a
reservation, an expired pass of its holder is enough, and so is a queue token or user JWT by itself.

Claims at the queue are batched and cached for a moment. Claiming again returns the same pass.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cachetools import TLRUCache

from services.inventory.layout.layout import Layout
from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import BATCH_MAX, Claimed, PlaceRef, PlacesQuestion, QueueClient
from shared.errors.problems import (
    BadCredential,
    NotAdmitted,
    PlaceExpired,
    StaleEpoch,
    UnknownReservation,
    WrongEvent,
)
from shared.runtime.clock import now_s
from shared.security.limits import FanLimit
from shared.security.tokens import (
    Pass,
    PassReader,
    QueueToken,
    QueueTokens,
    User,
    Users,
    credentials,
    first_valid,
    pass_cookie,
    queue_cookie,
    set_cookie,
)
from shared.web.request import Field, Request

NOT_ADMITTED_CACHE_S, ADMITTED_CACHE_S = 1.0, 10.0
RETRY_AFTER_S = 2
ENDED_STATUSES = frozenset({"completed", "expired", "left"})


class _RoomEpoch(NamedTuple):
    """One event in one epoch: places of different epochs are never in one batch."""

    event_id: str
    epoch: int


def _cached_until_s(_: object, claimed: Claimed, now_s: float) -> float:
    return now_s + (NOT_ADMITTED_CACHE_S if claimed.admission is None else ADMITTED_CACHE_S)


class PassClaimer:
    """Claims passes at the queue for admitted places, batched and cached."""

    def __init__(self, queue: QueueClient, *, waiting_max: int, cache_entries_max: int) -> None:
        self.queue = queue
        self._batches: KeyedBatches[_RoomEpoch, PlaceRef, Claimed] = KeyedBatches(
            self._claim_batch, name="inventory.claims", batch_max=BATCH_MAX, waiting_max=waiting_max
        )
        self._cache: TLRUCache[tuple[str, int, int, int], Claimed] = TLRUCache(cache_entries_max, _cached_until_s)

    async def claim(self, place: QueueToken) -> Claimed:
        """The pass of this place. Raises `NotAdmitted`, `PlaceExpired`, `StaleEpoch`, `Unavailable`, `Overloaded`."""
        key = place[:4]
        claimed = self._cache.get(key)
        if claimed is None:
            ref = PlaceRef(lane=place.lane, join_seq=place.join_seq, holder=place.holder)
            claimed = await self._batches.submit(_RoomEpoch(place.event_id, place.epoch), ref)
            self._cache[key] = claimed
        if claimed.word in ENDED_STATUSES:
            raise PlaceExpired(f"Your place in the line has ended: {claimed.word}. Join again.", place=claimed.word)
        if claimed.admission is None:
            raise NotAdmitted(retry_after_s=RETRY_AFTER_S)
        return claimed

    async def _claim_batch(self, key: _RoomEpoch, places: list[PlaceRef]) -> list[Claimed]:
        unique = {(ref.lane, ref.join_seq, ref.holder): ref for ref in places}
        question = PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=list(unique.values()))
        answer = await self.queue.claim(question)
        claims = dict(zip(unique, answer.claims, strict=True))
        return [claims[ref.lane, ref.join_seq, ref.holder] for ref in places]

    async def close(self) -> None:
        await self._batches.close()


PASS_HEADER, CHECKOUT_KEY_HEADER = b"onsale-pass", b"onsale-checkout-key"


class Holder(NamedTuple):
    """The holder of reservations, and until when (seconds since 1970) the credential proves it by itself."""

    holder: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class HolderAuthenticator:
    """Reads credentials. A pass is verified without a call to another service."""

    passes: PassReader
    queue_tokens: QueueTokens
    users: Users
    pass_claimer: PassClaimer
    fan_limit: FanLimit
    secure_cookies: bool

    async def admitted(self, request: Request, event_id: str) -> Pass:
        """The fan's pass: the one in the request, or the one claimed now. Raises `NotAdmitted`, `PlaceExpired`,
        `NotInQueue`, or `WrongEvent`.
        """
        credential = await self._credential(request, event_id, allow_expired=False)
        if isinstance(credential, Pass):
            return credential
        claimed = await (
            self.pass_claimer.claim(credential)
            if isinstance(credential, QueueToken)
            else self._claim_for_user(event_id, credential)
        )
        assert claimed.admission is not None, "claim raises without a pass"
        admission = self.passes.read(claimed.admission, now_s=now_s())
        request.added = self._answer_headers(event_id, claimed)
        return admission

    async def _claim_for_user(self, event_id: str, user: User) -> Claimed:
        place = await user.place(event_id)
        try:
            return await self.pass_claimer.claim(place)
        except StaleEpoch:
            place = await user.place(event_id, epoch_min=place.epoch + 1)
            return await self.pass_claimer.claim(place)

    async def holder_of(self, request: Request, event_id: str) -> Holder:
        """The holder that the credential names; a pass may have expired."""
        credential = await self._credential(request, event_id, allow_expired=True)
        return Holder(credential.holder, credential.expires_at_s if isinstance(credential, Pass) else math.inf)

    async def _credential(self, request: Request, event_id: str, *, allow_expired: bool) -> Pass | QueueToken | User:
        names = (name(event_id, secure=self.secure_cookies) for name in (pass_cookie, queue_cookie))
        read = partial(self._read, event_id=event_id, allow_expired=allow_expired)
        credential = await first_valid(credentials(request.scope, *names), read)
        self.fan_limit.check(event_id, credential.holder)
        return credential

    async def _read(self, text: str, event_id: str, *, allow_expired: bool) -> Pass | QueueToken | User:
        credential: Pass | QueueToken
        if self.passes.recognises(text):
            credential = self.passes.read(text, now_s=now_s(), allow_expired=allow_expired)
        elif self.queue_tokens.recognises(text):
            credential = self.queue_tokens.read(text)
        else:
            return await self.users.identify(text)
        if credential.event_id != event_id:
            raise WrongEvent
        return credential

    def _answer_headers(self, event_id: str, claimed: Claimed) -> tuple[Field, ...]:
        """Header fields of the answer with the pass and its checkout key, and the pass' cookie."""
        admission, lasts_s = claimed.admission or "", max(0, (claimed.expires_at_ms or 0) // 1000 - int(now_s()))
        name = pass_cookie(event_id, secure=self.secure_cookies)
        cookie = set_cookie(name, admission, max_age_s=lasts_s, secure=self.secure_cookies)
        return (
            (PASS_HEADER, admission.encode()), (CHECKOUT_KEY_HEADER, (claimed.checkout_key or "").encode()),
            (b"set-cookie", cookie.encode()),
        )  # fmt: skip


def require_current_epoch(admission: Pass, layout: Layout) -> Pass:
    """Raises `BadCredential` for a pass from before a reset of the waiting room."""
    if admission.epoch < layout.min_pass_epoch:
        raise BadCredential("The waiting room was reset and this pass is no longer valid. Join the line again.")
    return admission


def require_owner(owner: Holder, holder: str, *, until_ms: int, now_s: float) -> None:
    """Raises `UnknownReservation` for another holder's, `BadCredential` if the pass and the hold have both expired."""
    if owner.holder != holder:
        raise UnknownReservation
    if now_s > max(owner.expires_at_s, until_ms / 1000):
        raise BadCredential("This pass has expired. Join the line again.")
