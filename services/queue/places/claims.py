"""Status, claim, leave and release of places, in batches; every call is idempotent.

Redis decides a claim, the database records it, and only then the pass is signed, so a repeated claim gets the same
pass.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from services.queue.line.redis_line import ClaimReply, LineNotReady, RedisLine, StatusReply
from services.queue.line.repository import EndReason, LineRepository, PlaceId, PlaceRow, by_lane
from services.queue.line.rules import Bypass, LineRules
from services.queue.metrics import CLAIMED
from services.queue.places.sessions import PassInvalidation, SessionEnder, jti
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.queue import (
    Claimed,
    ExpiredWhy,
    Extended,
    HoldersAnswer,
    HoldersQuestion,
    PlaceFound,
    PlaceRef,
    PlacesQuestion,
    PlaceState,
    PlaceStatus,
)
from shared.errors.problems import StaleEpoch, Unavailable
from shared.postgres.engine import AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import from_datetime, now_ms
from shared.security.tokens import Keyring, Pass, checkout_key, sign_pass

ENDS_SOON_MS = 2_000  # what ends so soon may be ending already
RecordedPass = tuple[str | None, int | None]  # jti, expires_at_ms


@dataclass(frozen=True)
class Claims:
    """Operations on places that queue tokens name."""

    db: AsyncEngine
    line: RedisLine
    rules: LineRules
    rooms: Rooms
    sessions: SessionEnder
    pass_keys: Keyring
    checkout_keys: Keyring
    seal_keys: Keyring
    pass_invalidation: PassInvalidation

    async def _room(self, question: PlacesQuestion) -> WaitingRoom:
        room = await self.rooms.get(question.event_id)
        if room.epoch != question.epoch:
            room = await self.rooms.read(question.event_id)
        if room.epoch != question.epoch:
            raise StaleEpoch
        return room

    async def _rows(self, room: WaitingRoom, places: Iterable[PlaceRef]) -> dict[PlaceId, PlaceRow]:
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            return await repository.get_places({_place_id(p) for p in places})

    async def find(self, question: HoldersQuestion) -> HoldersAnswer:
        """The places of signed-in fans in the present line."""
        room = await self.rooms.get(question.event_id)
        if room.epoch < question.epoch_min:
            room = await self.rooms.read(question.event_id)
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            found = await repository.user_places(question.holders)
        place_ids = (found.get(holder) for holder in question.holders)
        places = [PlaceFound(lane=place_id[0], join_seq=place_id[1]) if place_id else None for place_id in place_ids]
        return HoldersAnswer(epoch=room.epoch, places=places)

    # -- status --------------------------------------------------------------------------------------------------------

    async def status(self, question: PlacesQuestion) -> list[PlaceStatus]:
        """The status of each place; counts as a heartbeat. From the database while Redis is unavailable."""
        room = await self._room(question)
        try:
            statuses = await self._touch_and_get_status(room, question.places)
        except (LineNotReady, *REDIS_AWAY):
            rows = await self._rows(room, question.places)
            return [_from_db(rows.get(_place_id(p))) for p in question.places]
        if self.rules.bypass is not None:
            await self._call_bypass(self.rules.bypass, room, question.places, statuses)
        ended = [p for p in question.places if statuses[_place_id(p)][1].status == "ended"]
        rows = await self._rows(room, ended) if ended else {}
        for place_id in await self._commit_again(room, _held(rows, ended)):
            statuses[place_id] = (statuses[place_id][0], StatusReply("waiting", 0))
        return [_status(*statuses[_place_id(p)], rows.get(_place_id(p))) for p in question.places]

    async def _touch_and_get_status(
        self, room: WaitingRoom, places: list[PlaceRef]
    ) -> dict[PlaceId, tuple[str, StatusReply]]:
        """Records heartbeats; the room's shown state and the status of each place."""
        result: dict[PlaceId, tuple[str, StatusReply]] = {}
        for lane, seqs in by_lane(map(_place_id, places)).items():
            await self.line.touch(room.event_id, room.epoch, lane, seqs)
            shown, statuses = await self.line.get_status(room.event_id, room.epoch, lane, seqs)
            result.update({(lane, seq): (shown, one) for seq, one in zip(seqs, statuses, strict=True)})
        return result

    @staticmethod
    async def _call_bypass(
        bypass: Bypass, room: WaitingRoom, places: list[PlaceRef], statuses: dict[PlaceId, tuple[str, StatusReply]]
    ) -> None:
        """Calls fans who need not wait as soon as a slot is free."""
        among = bypass.among(room, ((_place_id(place), place.holder) for place in places))
        waiting = {place_id for place_id in among if statuses[place_id][1].status == "waiting"}
        for place_id in await bypass.call(room, waiting) if waiting else ():
            statuses[place_id] = (statuses[place_id][0], StatusReply("ready", now_ms() + room.claim_window_s * 1000))

    async def _commit_again(self, room: WaitingRoom, rows: list[PlaceRow]) -> list[PlaceId]:
        """Commits places that Redis takes for ended, and the database neither for ended nor for called: such a place
        was inserted after its batch was given up, by a process that then died.
        """
        lost = [row.place_id for row in rows if row.end_reason is None and row.state is None]
        for lane, seqs in by_lane(lost).items():
            await self.line.commit_join(room, lane, "", seqs)
        return lost

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def claim(self, question: PlacesQuestion) -> list[Claimed]:
        """A pass for each place that is called, or the state of the place.

        A place that the database does not have, or has under another holder, was lost with a database restored to a
        time before its token: it has expired and its fan joins again. The other places of the batch are not affected.
        """
        room = await self._room(question)
        await self.pass_invalidation.ensure(room)
        rows = await self._rows(room, question.places)
        live = {place_id: row for place_id, row in rows.items() if row.end_reason is None}
        passes = {place_id: (row.jti, row.expires_at_ms) for place_id, row in live.items() if row.state == "claimed"}
        eligible = {row.place_id for row in _held(live, question.places)} - passes.keys()
        if self._is_closed(room):
            eligible = set()  # passes stay valid, no new ones are issued
        outcomes, claimed = await self._decide(room, eligible)
        passes.update(claimed)
        return [self._answer(room, place, rows, passes, outcomes) for place in question.places]

    def _is_closed(self, room: WaitingRoom) -> bool:
        ended_ms = from_datetime(room.sale_ends_at) if room.sale_ends_at else None
        over = ended_ms is not None and ended_ms <= now_ms() + self.line.clock_offset_ms
        return over or room.state == "closed"

    async def _decide(
        self, room: WaitingRoom, place_ids: Iterable[PlaceId]
    ) -> tuple[dict[PlaceId, str], dict[PlaceId, RecordedPass]]:
        """The outcome of each claim in Redis, and the passes that the database recorded."""
        outcomes: dict[PlaceId, str] = {}
        passes: dict[PlaceId, RecordedPass] = {}
        try:
            for lane, seqs in by_lane(place_ids).items():
                await self.line.touch(room.event_id, room.epoch, lane, seqs)
                generation, claims = await self.line.claim(room.event_id, room.epoch, lane, seqs)
                decided = dict(zip(((lane, seq) for seq in seqs), claims, strict=True))
                outcomes.update({place_id: claim.outcome for place_id, claim in decided.items()})
                passes.update(await self._save_claims(room, decided, generation))
        except LineNotReady as not_ready:
            raise Unavailable from not_ready
        return outcomes, passes

    async def _save_claims(
        self, room: WaitingRoom, decided: dict[PlaceId, ClaimReply], generation: int
    ) -> dict[PlaceId, RecordedPass]:
        rows = [
            (*place_id, claim.call, jti(room.epoch, *place_id, claim.call), claim.until_ms)
            for place_id, claim in decided.items()
            if claim.outcome == "admitted"
        ]
        if not rows:
            return {}
        async with self.db.begin() as connection:
            repository = LineRepository(connection, room.event_id, room.epoch)
            await repository.fence()
            passes = await repository.insert_claims(rows, generation=generation)
            await repository.emit(claimed=passes)
        CLAIMED.inc(len(passes))
        if len(passes) < len(rows):
            async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
                if not await repository.is_current_generation(generation):
                    raise Unavailable
        return dict(passes)

    def _answer(
        self, room: WaitingRoom, place: PlaceRef, rows: dict[PlaceId, PlaceRow],
        passes: dict[PlaceId, RecordedPass], outcomes: dict[PlaceId, str],
    ) -> Claimed:  # fmt: skip
        place_id = _place_id(place)
        if not _is_held(rows, place):
            return Claimed(word="expired")
        name, expires_at_ms = passes.get(place_id, (None, None))
        if name is None or expires_at_ms is None:
            unclaimed: PlaceState = "expired" if outcomes.get(place_id) == "ended" else "waiting"
            state = rows[place_id].end_reason or unclaimed
            return Claimed(word=state, why=_expired_reason(state, rows[place_id]))
        expires_at_s = expires_at_ms // 1000
        admission = Pass(
            event_id=room.event_id, holder=place.holder, jti=name, epoch=room.epoch, lane=place.lane,
            join_seq=place.join_seq, qty_max=room.tickets_per_order, issued_at_s=expires_at_s - room.session_s,
            expires_at_s=expires_at_s,
        )  # fmt: skip
        return Claimed(
            word="admitted",
            admission=sign_pass(self.pass_keys, admission, seal=self.seal_keys),
            jti=name,
            expires_at_ms=expires_at_ms,
            checkout_key=checkout_key(self.checkout_keys, name),
        )

    async def extend(self, question: PlacesQuestion) -> list[Extended]:
        """Gives each open session its length again, from now on, once. Redis follows, or hears of it when it finds the
        session due.
        """
        room = await self._room(question)
        rows = await self._rows(room, question.places)
        open_now = {row.place_id for row in _held(rows, question.places) if row.end_reason is None and row.jti}
        extended = await self._extend(room, open_now) if open_now else {}
        latest = await self._rows(room, question.places)
        passes = {place_id: (row.jti, row.expires_at_ms) for place_id, row in latest.items() if not row.end_reason}
        return [
            Extended(
                outcome=_extension(rows.get(_place_id(place)), given=_place_id(place) in extended),
                claimed=self._answer(room, place, latest, passes, {}),
            )
            for place in question.places
        ]

    async def _extend(self, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> dict[PlaceId, int]:
        slowest_ms = self.line.slowest_clock_ms()
        until_ms = (slowest_ms // 1000 + room.session_s) * 1000
        async with self.db.begin() as connection:
            repository = LineRepository(connection, room.event_id, room.epoch)
            await repository.fence()
            ends = await repository.extend_claims(
                place_ids, until_ms=until_ms, expires_after_ms=slowest_ms + ENDS_SOON_MS
            )
        with suppress(*REDIS_AWAY):
            await self.line.extend(room.event_id, room.epoch, [(*place_id, at_ms) for place_id, at_ms in ends.items()])
        return ends

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def leave(self, question: PlacesQuestion) -> list[PlaceState]:
        """Ends places that their holders leave; a session only after its pass is revoked."""
        room = await self._room(question)
        rows = await self._rows(room, question.places)
        live = [row.place_id for row in _held(rows, question.places) if row.end_reason is None]
        waiting = [place_id for place_id in live if rows[place_id].state != "claimed"]
        await self.sessions.end_places(room.event_id, room.epoch, waiting, end_reason="left", unclaimed=True)
        rows = await self._rows(room, question.places) if live else rows
        leaving = [rows[place_id] for place_id in live if rows[place_id].end_reason is None]
        return await self._end(room, question, rows, leaving, end_reason="left")

    async def release(self, question: PlacesQuestion) -> list[PlaceState]:
        """Ends sessions that a site reports as over; one with a live reservation stays."""
        room = await self._room(question)
        rows = await self._rows(room, question.places)
        over = [row for row in _held(rows, question.places) if row.end_reason is None and row.state == "claimed"]
        return await self._end(room, question, rows, over, end_reason="completed")

    async def _end(
        self, room: WaitingRoom, question: PlacesQuestion, rows: dict[PlaceId, PlaceRow], sessions: list[PlaceRow], *,
        end_reason: EndReason,
    ) -> list[PlaceState]:  # fmt: skip
        """Ends these sessions; the state of each place afterwards."""
        leaving = end_reason == "left"
        await self.sessions.end(room.event_id, room.epoch, sessions, end_reason=end_reason, leaving=leaving)
        rows = await self._rows(room, question.places) if sessions else rows
        return [_state_after_end(rows.get(_place_id(p)), p) for p in question.places]


def _extension(before: PlaceRow | None, *, given: bool) -> Literal["given", "before", "too-late"]:
    if given:
        return "given"
    return "before" if before is not None and before.extended else "too-late"


def _place_id(place: PlaceRef) -> PlaceId:
    return place.lane, place.join_seq


def _is_held(rows: dict[PlaceId, PlaceRow], place: PlaceRef) -> bool:
    row = rows.get(_place_id(place))
    return row is not None and row.holder == place.holder


def _held(rows: dict[PlaceId, PlaceRow], places: Iterable[PlaceRef]) -> list[PlaceRow]:
    """The rows of the places that are their holders'."""
    return [rows[_place_id(place)] for place in places if _is_held(rows, place)]


def _status(shown: str, reply: StatusReply, row: PlaceRow | None) -> PlaceStatus:
    if reply.status == "ended":
        status = (row.end_reason if row else None) or "expired"
        return PlaceStatus(status=status, why=_expired_reason(status, row))
    if reply.status == "waiting":
        return PlaceStatus(status="prequeue" if shown == "prequeue" else "waiting")
    return PlaceStatus(status=reply.status, until_ms=reply.until_ms)


def _expired_reason(status: PlaceState, row: PlaceRow | None) -> ExpiredWhy | None:
    """Why a place expired: its session ended, or its last call was not claimed."""
    if status != "expired" or row is None:
        return None
    return "session" if row.jti else "unclaimed"


def _from_db(row: PlaceRow | None) -> PlaceStatus:
    if row is None:
        return PlaceStatus(status="waiting")
    if row.end_reason is not None:
        return PlaceStatus(status=row.end_reason, why=_expired_reason(row.end_reason, row))
    if row.state == "claimed":
        return PlaceStatus(status="admitted", until_ms=row.expires_at_ms)
    if row.state == "called" and (row.deadline_ms or 0) > now_ms():
        return PlaceStatus(status="ready", until_ms=row.deadline_ms)
    return PlaceStatus(status="waiting")


def _state_after_end(row: PlaceRow | None, place: PlaceRef) -> PlaceState:
    if row is None or row.holder != place.holder:
        return "left"
    return row.end_reason or ("admitted" if row.state == "claimed" else "waiting")
