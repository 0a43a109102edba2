"""Who asks: the holder of a pass for this event, or a fan who is ready and shows a queue token or a user JWT instead.

The latter is given a pass on the way, in the answer's header. A reservation's holder may still see it after the pass
expired; there, a queue token or user JWT is proof enough by itself.

Whose turn it is, by the queue: a fan who is ready gets a pass on the way, whoever is not is told so for a second.

Many fans are one question; asking again gives the same pass, so the call is claimed once however many requests come.
"""

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import HTTPConnection

from services.inventory.catalogue.layout import Layout
from shared.contracts.queue import Claimed, PlaceRef, PlacesQuestion, QueueClient
from shared.rpc.user_places import UserPlaces
from shared.runtime.clock import now_s
from shared.runtime.keyed_batches import Batches
from shared.security.auth import SAFE_METHODS, bearer, pass_cookie, queue_cookie, require_own_origin, set_cookie
from shared.security.tokens import Pass, PassReader, QueueToken, QueueTokens
from shared.security.user_jwt import User, Users
from shared.web.app import ANSWER_HEADERS_KEY
from shared.web.problems import (
    BadCredential,
    NoCredential,
    NotAdmitted,
    PlaceExpired,
    StaleEpoch,
    UnknownReservation,
    WrongEvent,
)

REFUSED_S, ADMITTED_S = 1.0, 10.0
RETRY_AFTER_S = 2
ENDED = frozenset({"completed", "expired", "left"})


class _Epoch(NamedTuple):
    """One event in one epoch: places of different epochs are never asked about together."""

    event_id: str
    epoch: int


class PassClaimer:
    """The queue's word on places, batched and remembered for a moment."""

    def __init__(self, queue: QueueClient, *, waiting_max: int, cache_entries_max: int) -> None:
        self._queue, self._remembered_max = queue, cache_entries_max
        self._batches: Batches[_Epoch, PlaceRef, Claimed] = Batches(
            self._ask, name="inventory.claims", waiting_max=waiting_max
        )
        self._remembered: OrderedDict[tuple[str, int, int, int], tuple[float, Claimed]] = OrderedDict()

    async def claim(self, place: QueueToken) -> Claimed:
        """The pass of this place. Raises `NotAdmitted`, `PlaceExpired`, `StaleEpoch`, `Unavailable`, `Overloaded`."""
        key = place[:4]
        until_s, claimed = self._remembered.get(key, (0.0, None))
        if claimed is None or time.monotonic() >= until_s:
            ref = PlaceRef(lane=place.lane, join_seq=place.join_seq, holder=place.holder)
            claimed = await self._batches.submit(_Epoch(place.event_id, place.epoch), ref)
            self._remember(key, claimed)
        if claimed.word in ENDED:
            raise PlaceExpired(f"This place has ended: {claimed.word}. You may join again.", place=claimed.word)
        if claimed.admission is None:
            raise NotAdmitted(retry_after_s=RETRY_AFTER_S)
        return claimed

    def _remember(self, key: tuple[str, int, int, int], claimed: Claimed) -> None:
        lasts_s = REFUSED_S if claimed.admission is None else ADMITTED_S
        self._remembered[key] = time.monotonic() + lasts_s, claimed
        self._remembered.move_to_end(key)
        if len(self._remembered) > self._remembered_max:
            self._remembered.popitem(last=False)

    async def _ask(self, key: _Epoch, places: list[PlaceRef]) -> list[Claimed]:
        wanted = {(ref.lane, ref.join_seq, ref.holder): ref for ref in places}
        question = PlacesQuestion(event_id=key.event_id, epoch=key.epoch, places=list(wanted.values()))
        answer = await self._queue.claim(question)
        claims = dict(zip(wanted, answer.claims, strict=True))
        return [claims[ref.lane, ref.join_seq, ref.holder] for ref in places]

    async def close(self) -> None:
        await self._batches.close()


PASS_HEADER, CHECKOUT_KEY_HEADER = b"onsale-pass", b"onsale-checkout-key"


class Holder(NamedTuple):
    """Whose reservations these are, and how long what was shown is proof of that by itself (seconds since 1970)."""

    holder: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class HolderAuthenticator:
    """Reads credentials. A pass asks nobody."""

    passes: PassReader
    queue_tokens: QueueTokens
    users: Users
    user_places: UserPlaces
    turns: PassClaimer
    secure_cookies: bool

    async def admitted(self, connection: HTTPConnection, event_id: str) -> Pass:
        """The pass that was shown, or the one this fan gets now. Raises `NotAdmitted`, `PlaceExpired`, `NotInQueue`,
        and `WrongEvent` for another event's.
        """
        shown = await self._shown(connection, event_id, allow_expired=False)
        if isinstance(shown, Pass):
            return shown
        claimed = await (self.turns.claim(shown) if isinstance(shown, QueueToken) else self._claim(event_id, shown))
        assert claimed.admission is not None, "who has no pass is not admitted"
        admission = self.passes.read(claimed.admission, now_s=now_s())
        connection.scope[ANSWER_HEADERS_KEY] = self._handed_over(event_id, claimed)
        return admission

    async def _claim(self, event_id: str, user: User) -> Claimed:
        place = await self.user_places.place(event_id, user.holder)
        try:
            return await self.turns.claim(place)
        except StaleEpoch:
            place = await self.user_places.place(event_id, user.holder, epoch_min=place.epoch + 1)
            return await self.turns.claim(place)

    async def caller(self, connection: HTTPConnection, event_id: str) -> Holder:
        """Who asks about a reservation; a pass may have expired."""
        shown = await self._shown(connection, event_id, allow_expired=True)
        return Holder(shown.holder, shown.expires_at_s if isinstance(shown, Pass) else math.inf)

    async def _shown(
        self, connection: HTTPConnection, event_id: str, *, allow_expired: bool
    ) -> Pass | QueueToken | User:
        token = bearer(connection)
        if token is not None:
            return await self._read(token, event_id, allow_expired=allow_expired)
        names = (name(event_id, secure=self.secure_cookies) for name in (pass_cookie, queue_cookie))
        cookies = (connection.cookies.get(name) for name in names)
        texts = [text for text in cookies if text]
        if texts and connection.scope["method"] not in SAFE_METHODS:
            require_own_origin(connection)
        refused: BadCredential | NoCredential = NoCredential()
        for text in texts:
            try:
                return await self._read(text, event_id, allow_expired=allow_expired)
            except BadCredential as bad:  # the pass has expired, the place may still be good
                refused = bad
        raise refused

    async def _read(self, text: str, event_id: str, *, allow_expired: bool) -> Pass | QueueToken | User:
        shown: Pass | QueueToken
        if self.passes.is_one(text):
            shown = self.passes.read(text, now_s=now_s(), allow_expired=allow_expired)
        elif self.queue_tokens.is_one(text):
            shown = self.queue_tokens.read(text)
        else:
            return await self.users.read(text)
        if shown.event_id != event_id:
            raise WrongEvent
        return shown

    def _handed_over(self, event_id: str, claimed: Claimed) -> list[tuple[bytes, bytes]]:
        """The pass and its checkout key, in the headers of whatever is answered, and the pass in its cookie."""
        admission, lasts_s = claimed.admission or "", max(0, (claimed.expires_at_ms or 0) // 1000 - int(now_s()))
        name = pass_cookie(event_id, secure=self.secure_cookies)
        kept = set_cookie(name, admission, max_age_s=lasts_s, secure=self.secure_cookies)
        return [
            (PASS_HEADER, admission.encode()),
            (CHECKOUT_KEY_HEADER, (claimed.checkout_key or "").encode()),
            (b"set-cookie", kept.encode()),
        ]


def require_current_epoch(admission: Pass, layout: Layout) -> Pass:
    """Raises `BadCredential` for a pass from before a reset: it looks at nothing and takes nothing any more."""
    if admission.epoch < layout.min_pass_epoch:
        raise BadCredential("The waiting room was reset; this pass belongs to the line before.")
    return admission


def require_owner(caller: Holder, holder: str, *, until_ms: int, now_s: float) -> None:
    """Raises `UnknownReservation` for somebody else's, `BadCredential` once an expired pass is of no use any more."""
    if caller.holder != holder:
        raise UnknownReservation
    if now_s > max(caller.expires_at_s, until_ms / 1000):
        raise BadCredential("This pass has expired.")
