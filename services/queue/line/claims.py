"""What one fan does with a place: ask where it stands, claim its call, leave. In batches; each again is the same.

The engine decides a claim, the ledger fixes it, and only then the pass is signed: whoever asks again, from wherever,
gets the same pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.queue.access.rollout import admit_bypass, bypass_candidates, refs
from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.line.replies import Claim, StatusReply
from services.queue.line.repository import LineRepository, PlaceId, PlaceRow, by_lane
from services.queue.line.sessions import PassInvalidation, Session, Sessions, jti
from services.queue.metrics import CLAIMED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.queue import (
    Claimed,
    ExpiredWhy,
    HoldersAnswer,
    HoldersQuestion,
    PlaceFound,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    PlaceStatus,
)
from shared.postgres.engine import AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import from_datetime, now_ms
from shared.security.order_tokens import checkout_key
from shared.security.tokens import Keyring, Pass, sign_pass
from shared.web.problems import StaleEpoch, Unavailable

ENDED: dict[str, PlaceState] = {"completed": "completed", "expired": "expired", "left": "left"}


@dataclass(frozen=True)
class Claims:
    """Status, claims and leaves of places named by their tokens."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    sessions: Sessions
    pass_keys: Keyring
    checkout_keys: Keyring
    seal_keys: Keyring
    floors: PassInvalidation

    async def _room(self, question: PlacesQuestion) -> WaitingRoom:
        room = await self.rooms.get(question.event_id)
        if room.epoch != question.epoch:
            room = await self.rooms.read(question.event_id)
        if room.epoch != question.epoch:
            raise StaleEpoch
        return room

    async def _stands(self, room: WaitingRoom, places: Iterable[PlaceRef]) -> dict[PlaceId, PlaceRow]:
        async with self.db.connect() as connection:
            return await LineRepository(connection, room.event_id, room.epoch).get_places({_seat(p) for p in places})

    async def find(self, question: HoldersQuestion) -> HoldersAnswer:
        """Where signed-in fans stand in the line as it is now."""
        room = await self.rooms.get(question.event_id)
        if room.epoch < question.epoch_min:
            room = await self.rooms.read(question.event_id)
        async with self.db.connect() as connection:
            found = await LineRepository(connection, room.event_id, room.epoch).user_places(question.holders)
        seats = (found.get(holder) for holder in question.holders)
        places = [PlaceFound(lane=seat[0], join_seq=seat[1]) if seat else None for seat in seats]
        return HoldersAnswer(epoch=room.epoch, places=places)

    # -- status --------------------------------------------------------------------------------------------------------

    async def status(self, question: PlacesQuestion) -> list[PlaceStatus]:
        """Where each place stands; a sign of life. From the ledger while the engine is away."""
        room = await self._room(question)
        try:
            seen = await self._seen(room, question.places)
        except (LineNotReady, *REDIS_AWAY):
            stands = await self._stands(room, question.places)
            return [_from_db(stands.get(_seat(p))) for p in question.places]
        await self._pass_by(room, question.places, seen)
        ended = [p for p in question.places if seen[_seat(p)][1].word == "ended"]
        stands = await self._stands(room, ended) if ended else {}
        return [_status(*seen[_seat(p)], stands.get(_seat(p))) for p in question.places]

    async def _seen(self, room: WaitingRoom, places: list[PlaceRef]) -> dict[PlaceId, tuple[str, StatusReply]]:
        """The room's shown state and the engine's word on each place, heard on the way."""
        found: dict[PlaceId, tuple[str, StatusReply]] = {}
        for lane, seqs in by_lane(map(_seat, places)).items():
            await self.line.touch(room.event_id, room.epoch, lane, seqs)
            shown, seen = await self.line.get_status(room.event_id, room.epoch, lane, seqs)
            found.update({(lane, seq): (shown, one) for seq, one in zip(seqs, seen, strict=True)})
        return found

    async def _pass_by(
        self, room: WaitingRoom, places: list[PlaceRef], seen: dict[PlaceId, tuple[str, StatusReply]]
    ) -> None:
        """Who waits outside the rolled-out share is called as soon as a slot is free."""
        late = {seat for seat in bypass_candidates(room, refs(places)) if seen[seat][1].word == "waiting"}
        for seat in await admit_bypass(self.line, room, late) if late else ():
            seen[seat] = (seen[seat][0], StatusReply("ready", now_ms() + room.claim_window_s * 1000))

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def claim(self, question: PlacesQuestion) -> list[Claimed]:
        """A pass for each place that is called, or the state that says why not.

        A place that the ledger does not know, or has under another holder, was lost with a ledger older than its token:
        it has expired, and its fan joins again. Whoever asks in the same batch has nothing to do with it.
        """
        room = await self._room(question)
        await self.floors.raised(room)
        stands = await self._stands(room, question.places)
        mine = [place for place in question.places if _is_whose(stands, place)]
        fixed = {seat: (s.jti, s.expires_at_ms) for seat, s in stands.items() if s.state == "claimed" and s.how is None}
        asking = [p for p in mine if _seat(p) not in fixed and not _how(stands, p)]
        if self._is_closed(room):
            asking = []  # who has a pass keeps it, nobody gets another
        words, new = await self._decide(room, asking)
        fixed.update(new)
        return [self._answer(room, place, stands, fixed, words) for place in question.places]

    def _is_closed(self, room: WaitingRoom) -> bool:
        ended_ms = from_datetime(room.sale_ends_at) if room.sale_ends_at else None
        over = ended_ms is not None and ended_ms <= now_ms() + self.line.clock_offset_ms
        return over or room.state == "closed"

    async def _decide(
        self, room: WaitingRoom, places: list[PlaceRef]
    ) -> tuple[dict[PlaceId, str], dict[PlaceId, tuple[str | None, int | None]]]:
        """The engine's word on each place, and the passes that the ledger fixed."""
        words: dict[PlaceId, str] = {}
        fixed: dict[PlaceId, tuple[str | None, int | None]] = {}
        try:
            for lane, seqs in by_lane(map(_seat, places)).items():
                await self.line.touch(room.event_id, room.epoch, lane, seqs)
                fill, claims = await self.line.claim(room.event_id, room.epoch, lane, seqs)
                decided = dict(zip(((lane, seq) for seq in seqs), claims, strict=True))
                words.update({seat: claim.word for seat, claim in decided.items()})
                fixed.update(await self._fix(room, decided, fill))
        except LineNotReady as not_ready:
            raise Unavailable from not_ready
        return words, fixed

    async def _fix(
        self, room: WaitingRoom, decided: dict[PlaceId, Claim], fill: int
    ) -> dict[PlaceId, tuple[str | None, int | None]]:
        rows = [
            (*seat, claim.call, jti(room.epoch, *seat, claim.call), claim.until_ms)
            for seat, claim in decided.items()
            if claim.word == "admitted"
        ]
        if not rows:
            return {}
        async with self.db.begin() as connection:
            of = LineRepository(connection, room.event_id, room.epoch)
            await of.fence()
            fixed = await of.claims(rows, fill=fill)
            await of.tell("claimed", fixed)
        CLAIMED.inc(len(fixed))
        if len(fixed) < len(rows) and not await self._filled_by(room, fill):
            raise Unavailable
        return dict(fixed)

    async def _filled_by(self, room: WaitingRoom, fill: int) -> bool:
        async with self.db.connect() as connection:
            return await LineRepository(connection, room.event_id, room.epoch).filled_by(fill)

    def _answer(
        self, room: WaitingRoom, place: PlaceRef, stands: dict[PlaceId, PlaceRow],
        fixed: dict[PlaceId, tuple[str | None, int | None]], words: dict[PlaceId, str],
    ) -> Claimed:  # fmt: skip
        seat = _seat(place)
        if not _is_whose(stands, place):
            return Claimed(word="expired")
        name, expires_at_ms = fixed.get(seat, (None, None))
        if name is None or expires_at_ms is None:
            how = _how(stands, place)
            word = ENDED[how] if how else "expired" if words.get(seat) == "ended" else "waiting"
            return Claimed(word=word, why=_why(word, stands[seat]))
        expires_at_s = expires_at_ms // 1000
        admission = Pass(
            room.event_id, place.holder, name, room.epoch, place.lane, place.join_seq, room.tickets_per_order,
            expires_at_s - room.session_s, expires_at_s,
        )  # fmt: skip
        return Claimed(
            word="admitted",
            admission=sign_pass(self.pass_keys, admission, seal=self.seal_keys),
            jti=name,
            expires_at_ms=expires_at_ms,
            checkout_key=checkout_key(self.checkout_keys, name),
        )

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def leave(self, question: PlacesQuestion) -> list[PlaceState]:
        """Ends places at their holder's wish: a session only after its pass is dead. Leaving twice is leaving once."""
        room = await self._room(question)
        stands = await self._stands(room, question.places)
        mine = [p for p in question.places if _is_whose(stands, p)]
        live = [p for p in mine if not _how(stands, p)]
        waiting = [_seat(p) for p in live if stands[_seat(p)].state != "claimed"]
        await self.sessions.close(room.event_id, room.epoch, waiting, how="left", unclaimed=True)
        stands = await self._stands(room, question.places) if live else stands
        leaving = [_session(stands[_seat(p)]) for p in live if stands[_seat(p)].how is None]
        await self.sessions.end(room.event_id, room.epoch, leaving, how="left", leaving=True)
        stands = await self._stands(room, question.places) if leaving else stands
        return [_left(stands.get(_seat(p)), p) for p in question.places]

    async def release(self, question: PlacesQuestion) -> list[PlaceState]:
        """Ends sessions that a site says are over; a live reservation lets its session stand."""
        room = await self._room(question)
        stands = await self._stands(room, question.places)
        found = (stands[_seat(p)] for p in question.places if _is_whose(stands, p))
        over = [_session(stand) for stand in found if stand.how is None and stand.state == "claimed"]
        await self.sessions.end(room.event_id, room.epoch, over, how="completed")
        stands = await self._stands(room, question.places) if over else stands
        return [_left(stands.get(_seat(p)), p) for p in question.places]


def _seat(place: PlaceRef) -> PlaceId:
    return place.lane, place.join_seq


def _how(stands: dict[PlaceId, PlaceRow], place: PlaceRef) -> str | None:
    stand = stands.get(_seat(place))
    return stand.how if stand else None


def _is_whose(stands: dict[PlaceId, PlaceRow], place: PlaceRef) -> bool:
    stand = stands.get(_seat(place))
    return stand is not None and stand.holder == place.holder


def _session(stand: PlaceRow) -> Session:
    return Session(stand.lane, stand.join_seq, stand.holder, stand.jti or "", stand.expires_at_ms or 0)


def _status(shown: str, seen: StatusReply, stand: PlaceRow | None) -> PlaceStatus:
    if seen.word == "ready":
        return PlaceStatus(status="ready", until_ms=seen.until_ms)
    if seen.word == "admitted":
        return PlaceStatus(status="admitted", until_ms=seen.until_ms)
    if seen.word == "ended":
        status = ENDED[stand.how] if stand and stand.how else "expired"
        return PlaceStatus(status=status, why=_why(status, stand))
    return PlaceStatus(status="prequeue" if shown == "prequeue" else "waiting")


def _why(status: PlaceState, stand: PlaceRow | None) -> ExpiredWhy | None:
    """Of an expired place: whether its last call was ever claimed."""
    if status != "expired" or stand is None:
        return None
    return "session" if stand.jti else "unclaimed"


def _from_db(stand: PlaceRow | None) -> PlaceStatus:
    if stand is None:
        return PlaceStatus(status="waiting")
    if stand.how is not None:
        return PlaceStatus(status=ENDED[stand.how], why=_why(ENDED[stand.how], stand))
    if stand.state == "claimed":
        return PlaceStatus(status="admitted", until_ms=stand.expires_at_ms)
    if stand.state == "called" and (stand.deadline_ms or 0) > now_ms():
        return PlaceStatus(status="ready", until_ms=stand.deadline_ms)
    return PlaceStatus(status="waiting")


def _left(stand: PlaceRow | None, place: PlaceRef) -> PlaceState:
    if stand is None or stand.holder != place.holder:
        return "left"
    if stand.how is not None:
        return ENDED[stand.how]
    return "admitted" if stand.state == "claimed" else "waiting"
