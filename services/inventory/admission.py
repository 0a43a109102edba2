"""Who asks: the holder of a pass for this event, or a fan who is ready and shows a queue token or a user JWT instead.

The latter is given a pass on the way, in the answer's header. A reservation's holder may still see it after the pass
expired; there, a queue token or user JWT is proof enough by itself.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import HTTPConnection

from services.inventory.layout import Layout
from services.inventory.turns import Turns
from shared.auth import SAFE_METHODS, bearer, pass_cookie, queue_cookie, require_own_origin, set_cookie
from shared.clock import now_s
from shared.contracts.queue import Claimed
from shared.problems import BadCredential, NoCredential, StaleEpoch, UnknownReservation, WrongEvent
from shared.service import ANSWER_HEADERS_KEY
from shared.tokens import Pass, PassReader, QueueToken, QueueTokens
from shared.user_jwt import User, Users
from shared.user_places import UserPlaces

PASS_HEADER, CHECKOUT_KEY_HEADER = b"onsale-pass", b"onsale-checkout-key"


class Caller(NamedTuple):
    """Whose reservations these are, and how long what was shown is proof of that by itself (seconds since 1970)."""

    holder: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class Admissions:
    """Reads credentials. A pass asks nobody."""

    passes: PassReader
    queue_tokens: QueueTokens
    users: Users
    user_places: UserPlaces
    turns: Turns
    secure_cookies: bool

    async def admitted(self, connection: HTTPConnection, event_id: str) -> Pass:
        """The pass that was shown, or the one this fan gets now. Raises `NotCalled`, `PlaceEnded`, `NoPlace`, and
        `WrongEvent` for another event's.
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

    async def caller(self, connection: HTTPConnection, event_id: str) -> Caller:
        """Who asks about a reservation; a pass may have expired."""
        shown = await self._shown(connection, event_id, allow_expired=True)
        return Caller(shown.holder, shown.expires_at_s if isinstance(shown, Pass) else math.inf)

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


def still_good(admission: Pass, layout: Layout) -> Pass:
    """Raises `BadCredential` for a pass from before a reset: it looks at nothing and takes nothing any more."""
    if admission.epoch < layout.pass_floor:
        raise BadCredential("The waiting room was reset; this pass belongs to the line before.")
    return admission


def require_owner(caller: Caller, holder: str, *, until_ms: int, now_s: float) -> None:
    """Raises `UnknownReservation` for somebody else's, `BadCredential` once an expired pass is of no use any more."""
    if caller.holder != holder:
        raise UnknownReservation
    if now_s > max(caller.expires_at_s, until_ms / 1000):
        raise BadCredential("This pass has expired.")
