"""Joining, a batch at a time: numbers from the engine, places in the ledger, then the bits; answered when on disk.

When the engine is away, numbers come from the ledger's own high-water mark, and joining goes on.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import select

from services.queue.landings import Landings
from services.queue.ledger import Of, Seat, by_lane
from services.queue.line import EngineNotReady, Line
from services.queue.metrics import JOIN_REFUSED, JOINED
from services.queue.placing import place
from services.queue.replies import Numbers
from services.queue.rollout import beside, pass_by
from services.queue.rooms import Room, Rooms
from services.queue.tables import lane as lane_table
from shared.clock import now_ms
from shared.contracts.frames import LineFrame
from shared.contracts.queue import Join, JoinAnswer, JoinBatch, Joined, PlaceState
from shared.postgres import AsyncEngine
from shared.problems import Overloaded, StaleEpoch, Unavailable
from shared.redis import ENGINE_AWAY

Refused = Literal["line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed"]
Outcome = Seat | Refused
REFUSALS: dict[str, Refused] = {"closed": "closed", "sold-out": "sold-out", "line-full": "line-full"}
ATTEMPTS_MAX = 4
RENEW_S = 1.0
AWAY_S = 1.0


@dataclass
class Joins:
    """Gives places. `turn` runs one ordinary turn of the gatekeeper and answers its frame."""

    engine: AsyncEngine
    line: Line
    rooms: Rooms
    turn: Callable[[str], Awaitable[LineFrame]]
    shown: Callable[[str], Awaitable[LineFrame]]
    landings: Landings
    at_once_max: int
    _pending: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    _away_until_s: float = 0.0
    _at_once: int = 0

    async def join(self, batch: JoinBatch) -> JoinAnswer:
        """A place for every holder, the one he has or a new one; or why not. Raises `UnknownEvent`."""
        if self._at_once >= self.at_once_max:
            raise Overloaded
        self._at_once += 1
        try:
            return await self._join(await self.rooms.get(batch.event_id), batch)
        except StaleEpoch:
            return await self._join(await self.rooms.read(batch.event_id), batch)
        finally:
            self._at_once -= 1

    async def _join(self, room: Room, batch: JoinBatch) -> JoinAnswer:
        known = await self._known(room, [join.holder for join in batch.joins if join.may_be_known])
        await self._hear(room, known.values())
        outcomes: dict[str, Outcome] = {**dict(_unfit(room, batch)), **known}
        call_now = False
        for lane in room.lanes:
            fresh = {join.holder: join for join in batch.joins if join.lane == lane and join.holder not in outcomes}
            if fresh:
                work = Work(room, lane, f"{batch.batch_id}/{lane}", fresh)
                await self._place(work)
                outcomes.update(work.outcomes)
                known.update(work.known)
                call_now = call_now or work.call_now
        placed = ((out, holder) for holder, out in outcomes.items() if isinstance(out, tuple))
        outside = beside(room, placed)
        passed = await pass_by(self.line, room, outside) if outside else set()
        frame = await (self.turn if call_now or passed else self.shown)(batch.event_id)
        return await self._answer(room, batch, outcomes, known, frame, outside)

    async def _known(self, room: Room, holders: list[str]) -> dict[str, Seat]:
        if not holders:
            return {}
        async with self.engine.connect() as connection:
            return await Of(connection, room.event_id, room.epoch).live_places(holders)

    async def _hear(self, room: Room, seats: Iterable[Seat]) -> None:
        """Coming back is a sign of life."""
        try:
            for lane, seqs in by_lane(seats).items():
                await self.line.hear(room.event_id, room.epoch, lane, seqs)
        except (EngineNotReady, *ENGINE_AWAY):
            return

    # -- numbers from the engine ---------------------------------------------------------------------------------------

    async def _place(self, work: "Work") -> None:
        """Numbers and inserts until every holder has a place or a refusal."""
        for attempt in range(ATTEMPTS_MAX):
            if not work.fresh:
                return
            numbers = await self._allocate(work, f"{work.batch_id}/{attempt}")
            if numbers is None:
                await self._place_by_ledger(work)
                return
            if isinstance(numbers, str):
                work.refuse(_refusal(numbers))
                return
            await self._insert(work, numbers)
        if work.fresh:
            await self._place_by_ledger(work)

    async def _allocate(self, work: "Work", batch_id: str) -> Numbers | str | None:
        """Numbers, a refusal, or nothing when the engine cannot number. What we numbered ourselves lands first."""
        if _now_s() < self._away_until_s:
            return None
        try:
            await self.landings.land(work.room, work.lane)
            return await self.line.allocate(work.room, work.lane, batch_id, count=len(work.fresh))
        except EngineNotReady:
            return None
        except ENGINE_AWAY:
            self._away_until_s = _now_s() + AWAY_S
            return None

    async def _insert(self, work: "Work", numbers: Numbers) -> None:
        joins = list(work.fresh.values())[: numbers.granted]
        self._pending[numbers.member] = (work.room.event_id, work.room.epoch, work.lane)
        try:
            rows = [(join.holder, join.user_id) for join in joins]
            landed = await place(self.engine, work.room, work.lane, numbers.first, rows, fill=numbers.fill)
        finally:
            del self._pending[numbers.member]
        await self._land(work, numbers.member, landed)
        given = {join.holder: (work.lane, n) for n, join in enumerate(joins, numbers.first) if n in landed}
        work.gave(given)
        JOINED.labels("engine").inc(len(given))
        left_over = [join.holder for join in joins if join.holder not in given]
        if left_over:
            await self._settle(work, left_over)

    async def _settle(self, work: "Work", holders: list[str]) -> None:
        """For those whose row was refused: either they have a place, or their numbers were somebody else's.

        A second statement, because the loser of `ON CONFLICT DO NOTHING` sees no row in the same one.
        """
        async with self.engine.connect() as connection:
            of = Of(connection, work.room.event_id, work.room.epoch)
            found = await of.live_places(holders)
            tails = await of.lanes()
        await self._hear(work.room, found.values())
        work.knew(found)
        if work.fresh:
            try:
                await self.line.raise_counter(work.room.event_id, work.room.epoch, work.lane, tails[work.lane][1])
            except ENGINE_AWAY:
                self._away_until_s = _now_s() + AWAY_S

    async def _land(self, work: "Work", member: str, landed: set[int]) -> None:
        """The places are on disk whatever happens here: what cannot land now lands later."""
        try:
            work.call_now = await self.line.land(work.room, work.lane, member, landed) or work.call_now
        except (EngineNotReady, *ENGINE_AWAY):
            self.landings.keep(work.room, work.lane, landed)

    # -- numbers from the ledger ---------------------------------------------------------------------------------------

    async def _place_by_ledger(self, work: "Work") -> None:
        refusal = await self._refusal_by_ledger(work)
        if refusal:
            work.refuse(refusal)
            return
        joins = [(join.holder, join.user_id) for join in work.fresh.values()]
        for _ in range(ATTEMPTS_MAX):
            async with self.engine.begin() as connection:
                of = Of(connection, work.room.event_id, work.room.epoch)
                row = lane_table.c
                await connection.execute(
                    select(row.lane)
                    .where(row.event_id == of.event_id, row.epoch == of.epoch, row.lane == work.lane)
                    .with_for_update()
                )
                numbers = await of.join_by_ledger(work.lane, joins)
                await of.tell_joined(work.lane, numbers.values())
            work.gave({holder: (work.lane, n) for holder, n in numbers.items()})
            JOINED.labels("ledger").inc(len(numbers))
            self.landings.keep(work.room, work.lane, set(numbers.values()))
            work.knew(await self._known(work.room, list(work.fresh)))
            joins = [(join.holder, join.user_id) for join in work.fresh.values()]
            if not joins:
                return
        raise Unavailable

    async def _refusal_by_ledger(self, work: "Work") -> Refused | None:
        room = await self.rooms.read(work.room.event_id)
        if room.epoch != work.room.epoch:
            raise StaleEpoch
        at_ms, ends = now_ms(), room.sale_ends_at
        closed = room.state not in ("open", "paused") or (room.opens_ms or 0) > at_ms
        if closed or (ends is not None and ends.timestamp() * 1000 <= at_ms):
            return "closed"
        async with self.engine.connect() as connection:
            head, tail = (await Of(connection, room.event_id, room.epoch).lanes())[work.lane]
        return "line-full" if room.max_line is not None and tail - head >= room.max_line else None

    async def renew(self) -> None:
        """Each second: the batches whose insert is pending are alive."""
        of_lane: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        for member, where in self._pending.items():
            of_lane[where].append(member)
        for (event_id, epoch, lane), members in of_lane.items():
            await self.line.renew(event_id, epoch, lane, members)

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(
        self, room: Room, batch: JoinBatch, outcomes: dict[str, Outcome], known: dict[str, Seat], frame: LineFrame,
        outside: set[Seat],
    ) -> JoinAnswer:  # fmt: skip
        heads = {lane: at.head_seq for lane, at in frame.lanes.items()} if frame.ready else {}
        seats = [outcome for outcome in outcomes.values() if isinstance(outcome, tuple)]
        states = await self._states(
            room, [s for s in seats if room.draw.rank(*s) <= heads.get(s[0], 0) or s in outside]
        )
        otherwise: PlaceState = "prequeue" if frame.state == "prequeue" else "waiting"
        joined = []
        for join in batch.joins:
            outcome = outcomes[join.holder]
            if isinstance(outcome, str):
                JOIN_REFUSED.labels(outcome).inc()
                joined.append(Joined(word=outcome))
            else:
                word: Literal["known", "joined"] = "known" if join.holder in known else "joined"
                status = states.get(outcome, otherwise)
                joined.append(Joined(word=word, lane=outcome[0], join_seq=outcome[1], status=status))
        return JoinAnswer(epoch=room.epoch, joined=joined, frame=frame)

    async def _states(self, room: Room, seats: list[Seat]) -> dict[Seat, PlaceState]:
        """Which of these are called or admitted; the status call tells if the engine cannot."""
        states: dict[Seat, PlaceState] = {}
        try:
            for lane, seqs in by_lane(seats).items():
                _, seen = await self.line.look(room.event_id, room.epoch, lane, seqs)
                for seq, one in zip(seqs, seen, strict=True):
                    if one.word in ("ready", "admitted"):
                        states[lane, seq] = "ready" if one.word == "ready" else "admitted"
        except (EngineNotReady, *ENGINE_AWAY):
            return {}
        return states


@dataclass
class Work:
    """The joins of one lane on their way: `fresh` still have no outcome."""

    room: Room
    lane: int
    batch_id: str
    fresh: dict[str, Join]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    known: dict[str, Seat] = field(default_factory=dict)
    call_now: bool = False

    def gave(self, seats: dict[str, Seat]) -> None:
        for holder, seat in seats.items():
            self.outcomes[holder] = seat
            del self.fresh[holder]

    def knew(self, seats: dict[str, Seat]) -> None:
        self.known.update(seats)
        self.gave(seats)

    def refuse(self, word: Refused) -> None:
        for holder in list(self.fresh):
            self.outcomes[holder] = word
            del self.fresh[holder]


def _unfit(room: Room, batch: JoinBatch) -> Iterator[tuple[str, Refused]]:
    """Who may not join here, whatever else; one who has a place keeps it."""
    signed_in_only = room.options.entry.signed_in_only
    for join in batch.joins:
        if join.lane not in room.lanes:
            yield join.holder, "unknown-lane"
        elif signed_in_only and join.user_id is None:
            yield join.holder, "sign-in-needed"


def _refusal(word: str) -> Refused:
    if word in REFUSALS:
        return REFUSALS[word]
    raise Unavailable("Too many batches are on their way.")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
