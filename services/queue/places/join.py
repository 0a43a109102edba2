"""Joins in batches: numbers from Redis, places in PostgreSQL, then liveness bits in Redis.

A join is answered when its place is committed. While Redis is unavailable, numbers continue from the highest one in the
database and joining goes on; what is committed in the database alone is committed to Redis as soon as it answers,
before new numbers are allocated.

Places are inserted in three round trips: the fence, the places with their event, the commit. A batch without conflicts,
as nearly all are, is inserted by a plain `INSERT`. Only one that met a number or a holder that exists already is
inserted again, by the statement that skips these: PostgreSQL looks into each unique index twice for it, which makes a
row cost half as much again. The fence is a statement of its own, because a joint statement would read a snapshot older
than the lock. The statements run on the driver itself: they are the most frequent of all, and a batch costs its round
trips, not its members.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from asyncpg import UniqueViolationError

from services.queue.line.redis_line import Allocation, LineNotReady, RedisLine
from services.queue.line.repository import LineRepository, PlaceId, by_lane, joined
from services.queue.line.rules import JoinCodes, LineRules, OpenedLanes
from services.queue.metrics import JOIN_REFUSED, JOINED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import Quiet, wake
from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinAnswer, JoinBatch, Joined, JoinRequest, PlaceState
from shared.errors.problems import Overloaded, StaleEpoch, Unavailable
from shared.postgres.engine import AsyncEngine, driver_connection, fenced, raw_statement, retry_deadlocks
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms
from shared.runtime.tracing import sale_log

ATTEMPTS_MAX = 4
RENEW_S = 1.0
PENDING_MAX = 2_000_000
INSERT_PLACES = raw_statement(__package__, "insert_places")
INSERT_NEW_PLACES = INSERT_PLACES.replace("    ON CONFLICT DO NOTHING\n", "")
BEGIN_SHARED = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
INSERT_EVENT = "INSERT INTO queue.outbox_batch (events) VALUES (jsonb_build_array($1::text::jsonb))"


class JoinOutcome(NamedTuple):
    """`joined` with a new place, `known` with the place the holder had, or the reason of a refusal."""

    word: str
    place_id: PlaceId | None = None


@dataclass
class LaneJoinBatch:
    """Joins to one lane, by holder, and their outcomes so far."""

    room: WaitingRoom
    lane: int
    batch_id: str
    joins: dict[str, JoinRequest]
    codes: JoinCodes | None = None
    outcomes: dict[str, JoinOutcome] = field(default_factory=dict)
    call_now: bool = False

    @property
    def pending(self) -> list[JoinRequest]:
        """The joins without an outcome."""
        return [join for holder, join in self.joins.items() if holder not in self.outcomes]

    def reject(self, reason: str) -> None:
        self.outcomes |= {join.holder: JoinOutcome(reason) for join in self.pending}


def known_places(place_ids: Mapping[str, PlaceId]) -> dict[str, JoinOutcome]:
    """The outcome of joins whose holder has a place, by holder."""
    return {holder: JoinOutcome("known", place_id) for holder, place_id in place_ids.items()}


def join_seqs(outcomes: Mapping[str, JoinOutcome]) -> set[int]:
    """The numbers of the places among these outcomes."""
    return {outcome.place_id[1] for outcome in outcomes.values() if outcome.place_id}


class PendingCommits:
    """Numbers by room and lane. If this process dies, all places are taken as live once the counter is raised."""

    def __init__(self, line: RedisLine, rooms: Rooms) -> None:
        self._line, self._rooms = line, rooms
        self._pending: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    def add(self, room: WaitingRoom, lane: int, numbers: set[int]) -> None:
        """Adds committed numbers; beyond PENDING_MAX they are left to the raised counter."""
        wake("queue")
        pending = self._pending[room.event_id, room.epoch, lane]
        if len(pending) + len(numbers) <= PENDING_MAX:
            pending |= numbers

    async def commit(self, room: WaitingRoom, lane: int) -> None:
        """Commits the numbers of this lane to Redis. If that raises, they stay pending."""
        pending = self._pending.pop((room.event_id, room.epoch, lane), None)
        if pending:
            try:
                await self._line.commit_join(room, lane, "", pending)
            except BaseException:
                self.add(room, lane, pending)
                raise

    async def commit_all(self) -> Quiet | None:
        """Commits all pending numbers; those of an old epoch are dropped."""
        for event_id, epoch, lane in list(self._pending):
            room = await self._rooms.get(event_id)
            if room.epoch != epoch:
                self._pending.pop((event_id, epoch, lane), None)
                continue
            try:
                await self.commit(room, lane)
            except (LineNotReady, *REDIS_AWAY):
                continue
        return None if self._pending else Quiet()


@dataclass
class Joins:
    """Joins fans. `tick` runs one tick of the gatekeeper and returns its frame; `frame` returns the last frame."""

    db: AsyncEngine
    line: RedisLine
    rules: LineRules
    rooms: Rooms
    tick: Callable[[str], Awaitable[LineFrame]]
    frame: Callable[[str], Awaitable[LineFrame]]
    pending_commits: PendingCommits
    in_flight_max: int
    _inserting: list[tuple[str, tuple[str, int, int]]] = field(default_factory=list)  # twice what was sent twice
    _in_flight: int = 0

    async def join(self, batch: JoinBatch) -> JoinAnswer:
        """For every holder the place they have, a new one, or the reason of a refusal. Raises `UnknownEvent`."""
        if self._in_flight >= self.in_flight_max:
            raise Overloaded
        self._in_flight += 1
        try:
            return await self._join(await self.rooms.get(batch.event_id), batch)
        except StaleEpoch:
            return await self._join(await self.rooms.read(batch.event_id), batch)
        finally:
            self._in_flight -= 1

    async def _join(self, room: WaitingRoom, batch: JoinBatch) -> JoinAnswer:
        known = await self._existing_places(room, [join.holder for join in batch.joins if join.may_be_known])
        await self._touch(room, known.values())
        brought = {join.holder: join.code for join in batch.joins if join.code is not None and join.holder not in known}
        codes = self.rules.codes(room, brought) if brought and self.rules.codes is not None else None
        opened = await _open_lanes(self.db, room, codes, brought)
        lanes = {join.holder: opened.lanes.get(join.holder, join.lane) for join in batch.joins}
        refusals = ((join.holder, _refusal_of_join(room, join, lanes[join.holder], opened)) for join in batch.joins)
        outcomes = {holder: JoinOutcome(reason) for holder, reason in refusals if reason} | known_places(known)
        call_now = False
        for lane in room.lanes:
            joins = {
                join.holder: join for join in batch.joins if lanes[join.holder] == lane and join.holder not in outcomes
            }
            if joins:
                lane_batch = LaneJoinBatch(room, lane, f"{batch.batch_id}/{lane}", joins, codes)
                await self._allocate_and_insert(lane_batch)
                outcomes |= lane_batch.outcomes
                call_now = call_now or lane_batch.call_now
        passing: set[PlaceId] = set()
        if (bypass := self.rules.bypass) is not None:
            placed = ((outcome.place_id, holder) for holder, outcome in outcomes.items() if outcome.place_id)
            passing = bypass.among(room, placed)
            call_now = bool(passing and await bypass.call(room, passing)) or call_now
        frame = await (self.tick if call_now else self.frame)(batch.event_id)
        return await self._answer(room, batch, outcomes, frame=frame, passing=passing)

    async def _existing_places(self, room: WaitingRoom, holders: list[str]) -> dict[str, PlaceId]:
        if not holders:
            return {}
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            return await repository.live_places(holders)

    async def _touch(self, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> None:
        """Coming back counts as a heartbeat."""
        try:
            for lane, seqs in by_lane(place_ids).items():
                await self.line.touch(room.event_id, room.epoch, lane, seqs)
        except (LineNotReady, *REDIS_AWAY):
            return

    # -- numbers from Redis --------------------------------------------------------------------------------------------

    async def _allocate_and_insert(self, batch: LaneJoinBatch) -> None:
        """Allocates numbers, after pending commits, and inserts places until each holder has a place or a refusal."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self.pending_commits.commit(batch.room, batch.lane)
                numbers = await self.line.allocate(
                    batch.room, batch.lane, f"{batch.batch_id}/{attempt}", count=len(batch.pending)
                )
            except (LineNotReady, *REDIS_AWAY):
                break
            if numbers.outcome == "busy":
                raise Unavailable("Too many joins are being written. Try again.")
            if numbers.outcome != "ok":
                batch.reject(numbers.outcome)
            else:
                await self._insert(batch, numbers)
            if not batch.pending:
                return
        await self._place_in_db(batch)

    async def _insert(self, batch: LaneJoinBatch, numbers: Allocation) -> None:
        joins = batch.pending[: numbers.granted]
        inserting = numbers.member, (batch.room.event_id, batch.room.epoch, batch.lane)
        self._inserting.append(inserting)
        wake("queue")  # they are renewed until they are inserted, however long that takes
        try:
            placed = await insert_places(self.db, batch, numbers)
        finally:
            self._inserting.remove(inserting)
        await self._commit(batch, numbers.member, join_seqs(placed))
        batch.outcomes |= placed
        JOINED.labels("redis").inc(len(join_seqs(placed)))
        unplaced = [join.holder for join in joins if join.holder not in placed]
        if unplaced:
            await self._resolve_conflicts(batch, unplaced)

    async def _resolve_conflicts(self, batch: LaneJoinBatch, holders: list[str]) -> None:
        """For holders whose row was not inserted: either they have a place, or their numbers were taken.

        It takes a second statement, because `ON CONFLICT DO NOTHING` does not return the row it met.
        """
        async with LineRepository.reading(self.db, batch.room.event_id, batch.room.epoch) as repository:
            existing = await repository.live_places(holders)
            tails = await repository.lanes()
        await self._touch(batch.room, existing.values())
        batch.outcomes |= known_places(existing)
        if batch.lane not in tails:
            raise StaleEpoch  # the lane was removed: start again with the room as it is now
        if batch.pending:
            with suppress(*REDIS_AWAY):
                await self.line.raise_counter(batch.room.event_id, batch.room.epoch, batch.lane, tails[batch.lane][1])

    async def _commit(self, batch: LaneJoinBatch, member: str, numbers: set[int]) -> None:
        """Commits places to Redis, now or, if Redis is unavailable, later; they are in the database already."""
        try:
            batch.call_now = await self.line.commit_join(batch.room, batch.lane, member, numbers) or batch.call_now
        except (LineNotReady, *REDIS_AWAY):
            self.pending_commits.add(batch.room, batch.lane, numbers)

    # -- numbers from the database -------------------------------------------------------------------------------------

    async def _place_in_db(self, batch: LaneJoinBatch) -> None:
        refusal = await self._refusal_by_db(batch)
        if refusal:
            batch.reject(refusal)
            return
        for _ in range(ATTEMPTS_MAX):
            placed = await insert_places_in_db(self.db, batch)
            numbers = join_seqs(placed)
            JOINED.labels("database").inc(len(numbers))
            self.pending_commits.add(batch.room, batch.lane, numbers)
            batch.outcomes |= placed
            batch.outcomes |= known_places(
                await self._existing_places(batch.room, [join.holder for join in batch.pending])
            )
            if not batch.pending:
                return
        raise Unavailable

    async def _refusal_by_db(self, batch: LaneJoinBatch) -> str | None:
        room = await self.rooms.read(batch.room.event_id)
        if room.epoch != batch.room.epoch:
            raise StaleEpoch
        at_ms, ends = now_ms(), room.sale_ends_at
        closed = room.state not in ("open", "paused") or (room.opens_ms or 0) > at_ms
        if closed or (ends is not None and ends.timestamp() * 1000 <= at_ms):
            return "closed"
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            head, tail = (await repository.lanes()).get(batch.lane, (0, 0))
        of_lane = (lane.max_line for lane in room.options.lanes if lane.lane == batch.lane)
        limits = [limit for limit in (room.max_line, *of_lane) if limit is not None]
        return "line-full" if any(tail - head >= limit for limit in limits) else None

    async def renew(self) -> Quiet | None:
        """Each second: keeps the batches that are being inserted in flight."""
        of_lane: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        for member, where in self._inserting:
            of_lane[where].append(member)
        for (event_id, epoch, lane), members in of_lane.items():
            await self.line.renew(event_id, epoch, lane, members)
        return None if self._inserting else Quiet()

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(
        self,
        room: WaitingRoom,
        batch: JoinBatch,
        outcomes: dict[str, JoinOutcome],
        *,
        frame: LineFrame,
        passing: set[PlaceId],
    ) -> JoinAnswer:
        heads = {lane: at.head_seq for lane, at in frame.lanes.items()} if frame.ready else {}
        place_ids = [outcome.place_id for outcome in outcomes.values() if outcome.place_id]
        states = await self._called_or_admitted(
            room, [s for s in place_ids if room.ranking.rank(*s) <= heads.get(s[0], 0) or s in passing]
        )
        later = {lane.lane for lane in room.options.lanes if lane.opens_ms > frame.at_ms}
        joined = []
        for join in batch.joins:
            outcome = outcomes[join.holder]
            if outcome.place_id is None:
                JOIN_REFUSED.labels(outcome.word).inc()
                joined.append(Joined(word=outcome.word))
            else:
                lane, join_seq = outcome.place_id
                early: bool = frame.state == "prequeue" or lane in later
                status = states.get(outcome.place_id, "prequeue" if early else "waiting")
                joined.append(Joined(word=outcome.word, lane=lane, join_seq=join_seq, status=status))
        return JoinAnswer(epoch=room.epoch, joined=joined, frame=frame)

    async def _called_or_admitted(self, room: WaitingRoom, place_ids: list[PlaceId]) -> dict[PlaceId, PlaceState]:
        """Which of these are called or admitted; none while Redis is unavailable, as the status call follows."""
        states: dict[PlaceId, PlaceState] = {}
        try:
            for lane, seqs in by_lane(place_ids).items():
                _, statuses = await self.line.get_status(room.event_id, room.epoch, lane, seqs)
                for seq, one in zip(seqs, statuses, strict=True):
                    if one.status in ("ready", "admitted"):
                        states[lane, seq] = "ready" if one.status == "ready" else "admitted"
        except (LineNotReady, *REDIS_AWAY):
            return {}
        return states


def _refusal_of_join(room: WaitingRoom, join: JoinRequest, lane: int, opened: OpenedLanes) -> str | None:
    if room.options.entry.signed_in_only and join.user_id is None:
        return "sign-in-needed"
    if join.holder in opened.refused:
        return opened.refused[join.holder]
    opens_nothing = join.code is not None and join.holder not in opened.lanes  # nobody here reads codes
    return "unknown-lane" if opens_nothing or lane not in room.lanes else None


# -- inserting ---------------------------------------------------------------------------------------------------------


async def insert_places(db: AsyncEngine, batch: LaneJoinBatch, numbers: Allocation) -> dict[str, JoinOutcome]:
    """Inserts the batch's first pending joins under the numbers that Redis gave; the outcome of each holder who did not
    have a place. The places are committed then.

    Raises `Unavailable` when it is unknown whether the places were committed.
    """
    joins = batch.pending[: numbers.granted]

    async def insert(statement: str) -> dict[str, JoinOutcome]:
        async with fenced(db, BEGIN_SHARED.format(fence=batch.room.fence)) as driver:
            return await _insert_with_codes(driver, batch, joins, partial(_insert, driver, batch, numbers, statement))

    try:
        outcomes = await retry_deadlocks(partial(insert, INSERT_NEW_PLACES))
    except UniqueViolationError:
        outcomes = await retry_deadlocks(partial(insert, INSERT_PLACES))
    wake("queue")
    return outcomes


async def _insert_with_codes(
    driver: Any,
    batch: LaneJoinBatch,
    joins: Sequence[JoinRequest],
    insert: Callable[[Sequence[JoinRequest]], Awaitable[dict[str, int]]],
) -> dict[str, JoinOutcome]:
    """Inserts those whose code, if they have one, opens the lane until the transaction ends."""
    refused: dict[str, str] = {}
    if batch.codes is not None:
        refused = (await batch.codes.open(driver, [join.holder for join in joins], lock=True)).refused
        joins = [join for join in joins if join.holder not in refused]
    join_seqs = await insert(joins) if joins else {}
    if batch.codes is not None:
        await batch.codes.placed(driver, batch.lane, join_seqs)
    placed = {holder: JoinOutcome("joined", (batch.lane, join_seq)) for holder, join_seq in join_seqs.items()}
    return placed | {holder: JoinOutcome(reason) for holder, reason in refused.items()}


async def _insert(
    driver: Any, batch: LaneJoinBatch, numbers: Allocation, statement: str, joins: Sequence[JoinRequest]
) -> dict[str, int]:
    room, lane, first = batch.room, batch.lane, numbers.first
    holders, users = [join.holder for join in joins], [join.user_id for join in joins]
    event = joined(room.event_id, room.epoch, lane, range(first, first + len(joins))).model_dump_json()
    with sale_log.timed("sale.statement", statement="queue:insert_places", event_id=room.event_id):
        rows = await driver.fetch(
            statement, room.event_id, room.epoch, lane, first, holders, users, numbers.generation, event
        )
    inserted = {join_seq for (join_seq,) in rows}
    if 0 < len(inserted) < len(joins):
        event = joined(room.event_id, room.epoch, lane, inserted).model_dump_json()
        await driver.execute(INSERT_EVENT, event)
    return {holder: join_seq for join_seq, holder in enumerate(holders, first) if join_seq in inserted}


async def _open_lanes(
    db: AsyncEngine, room: WaitingRoom, codes: JoinCodes | None, holders: Collection[str]
) -> OpenedLanes:
    """The lanes that codes open at present. The inserting transaction decides finally."""
    if codes is None:
        return OpenedLanes({}, {})
    async with fenced(db, BEGIN_SHARED.format(fence=room.fence)) as driver:
        return await codes.open(driver, holders, lock=False)


async def insert_places_in_db(db: AsyncEngine, batch: LaneJoinBatch) -> dict[str, JoinOutcome]:
    """Inserts the batch under the database's next numbers, while Redis is unavailable. Batches of a lane wait for each
    other at its row lock. Raises `StaleEpoch` when the lane is gone.
    """
    async with db.begin() as connection:
        repository = LineRepository(connection, batch.room.event_id, batch.room.epoch)
        if not await repository.lock_lane(batch.lane):
            raise StaleEpoch

        async def insert(joins: Sequence[JoinRequest]) -> dict[str, int]:
            rows = [(join.holder, join.user_id) for join in joins]
            join_seqs = await repository.insert_places_in_db(batch.lane, rows)
            await repository.emit_joined(batch.lane, join_seqs.values())
            return join_seqs

        return await _insert_with_codes(await driver_connection(connection), batch, batch.pending, insert)
