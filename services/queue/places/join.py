"""Joins in batches: numbers from Redis, places in PostgreSQL, then liveness bits in Redis.

A join is answered when its place is committed. While Redis is unavailable, numbers continue from the highest one in the
database and joining goes on; what is committed in the database alone is committed to Redis as soon as it answers,
before new numbers are allocated.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from services.queue.access.access_codes import ValidatedCodes, code_hash
from services.queue.access.rollout import admit_bypass, bypass_candidates
from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository, PlaceId, by_lane
from services.queue.metrics import JOIN_REFUSED, JOINED
from services.queue.places.insert_places import (
    JoinOutcome,
    LaneJoinBatch,
    Refused,
    insert_places,
    insert_places_in_db,
    join_seqs,
    known_places,
    lanes_by_code,
)
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import Quiet, wake
from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinAnswer, JoinBatch, Joined, JoinRequest, PlaceState
from shared.errors.problems import Overloaded, StaleEpoch, Unavailable
from shared.postgres.engine import AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms

ATTEMPTS_MAX = 4
RENEW_S = 1.0
PENDING_MAX = 2_000_000


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
        hashes = {
            join.holder: code_hash(room.event_id, join.code)
            for join in batch.joins
            if join.code is not None and join.holder not in known
        }
        codes = await lanes_by_code(self.db, room, hashes)
        lanes = {join.holder: codes.lanes.get(join.holder, join.lane) for join in batch.joins}
        refusals = ((join.holder, _refusal_of_join(room, join, lanes[join.holder], codes)) for join in batch.joins)
        outcomes = {holder: JoinOutcome(reason) for holder, reason in refusals if reason} | known_places(known)
        call_now = False
        for lane in room.lanes:
            joins = {
                join.holder: join for join in batch.joins if lanes[join.holder] == lane and join.holder not in outcomes
            }
            if joins:
                lane_batch = LaneJoinBatch(room, lane, f"{batch.batch_id}/{lane}", joins, hashes)
                await self._allocate_and_insert(lane_batch)
                outcomes |= lane_batch.outcomes
                call_now = call_now or lane_batch.call_now
        placed = ((outcome.place_id, holder) for holder, outcome in outcomes.items() if outcome.place_id)
        outside = bypass_candidates(room, placed)
        passed = await admit_bypass(self.line, room, outside) if outside else set()
        frame = await (self.tick if call_now or passed else self.frame)(batch.event_id)
        return await self._answer(room, batch, outcomes, frame=frame, outside=outside)

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

    async def _refusal_by_db(self, batch: LaneJoinBatch) -> Refused | None:
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
        outside: set[PlaceId],
    ) -> JoinAnswer:
        heads = {lane: at.head_seq for lane, at in frame.lanes.items()} if frame.ready else {}
        place_ids = [outcome.place_id for outcome in outcomes.values() if outcome.place_id]
        states = await self._called_or_admitted(
            room, [s for s in place_ids if room.ranking.rank(*s) <= heads.get(s[0], 0) or s in outside]
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


def _refusal_of_join(room: WaitingRoom, join: JoinRequest, lane: int, codes: ValidatedCodes) -> Refused | None:
    if room.options.entry.signed_in_only and join.user_id is None:
        return "sign-in-needed"
    if join.holder in codes.refused:
        return codes.refused[join.holder]
    return None if lane in room.lanes else "unknown-lane"
