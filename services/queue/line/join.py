"""Joining, a batch at a time: numbers from the engine, places in the ledger, then the bits; answered when on disk.

When the engine is away, numbers come from the ledger's own high-water mark, and joining goes on.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from services.queue.access.access_codes import code_hash
from services.queue.access.rollout import admit_bypass, bypass_candidates
from services.queue.line.insert_places import insert_places, lanes_of, place_in_db
from services.queue.line.lane_batch import LaneJoinBatch, Outcome, Refused
from services.queue.line.pending_landings import PendingCommits
from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository, PlaceId, by_lane
from services.queue.metrics import JOIN_REFUSED, JOINED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinAnswer, JoinBatch, Joined, PlaceState
from shared.postgres.engine import AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms
from shared.web.problems import Overloaded, StaleEpoch, Unavailable

REFUSALS: dict[str, Refused] = {"closed": "closed", "sold-out": "sold-out", "line-full": "line-full"}
ATTEMPTS_MAX = 4
RENEW_S = 1.0


@dataclass
class Joins:
    """Gives places. `turn` runs one ordinary turn of the gatekeeper and answers its frame."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    turn: Callable[[str], Awaitable[LineFrame]]
    shown: Callable[[str], Awaitable[LineFrame]]
    landings: PendingCommits
    at_once_max: int
    _pending: dict[str, tuple[str, int, int]] = field(default_factory=dict)
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

    async def _join(self, room: WaitingRoom, batch: JoinBatch) -> JoinAnswer:
        known = await self._known(room, [join.holder for join in batch.joins if join.may_be_known])
        await self._hear(room, known.values())
        hashes = {
            join.holder: code_hash(room.event_id, join.code)
            for join in batch.joins
            if join.code is not None and join.holder not in known
        }
        judged = await lanes_of(self.db, room, hashes)
        lanes = {join.holder: judged.get(join.holder, join.lane) for join in batch.joins}
        refused = {holder: lane for holder, lane in lanes.items() if isinstance(lane, str)}
        astray = (holder for holder, lane in lanes.items() if lane not in room.lanes)
        outcomes: dict[str, Outcome] = {**dict.fromkeys(astray, "unknown-lane"), **refused}
        outcomes |= dict.fromkeys(_strangers(room, batch), "sign-in-needed")
        outcomes |= known
        call_now = False
        for lane in room.lanes:
            fresh = {
                join.holder: join for join in batch.joins if lanes[join.holder] == lane and join.holder not in outcomes
            }
            if fresh:
                work = LaneJoinBatch(room, lane, f"{batch.batch_id}/{lane}", fresh, hashes)
                await self._place(work)
                outcomes.update(work.outcomes)
                known.update(work.known)
                call_now = call_now or work.call_now
        placed = ((out, holder) for holder, out in outcomes.items() if isinstance(out, tuple))
        outside = bypass_candidates(room, placed)
        passed = await admit_bypass(self.line, room, outside) if outside else set()
        frame = await (self.turn if call_now or passed else self.shown)(batch.event_id)
        return await self._answer(room, batch, outcomes, known, frame, outside)

    async def _known(self, room: WaitingRoom, holders: list[str]) -> dict[str, PlaceId]:
        if not holders:
            return {}
        async with self.db.connect() as connection:
            return await LineRepository(connection, room.event_id, room.epoch).live_places(holders)

    async def _hear(self, room: WaitingRoom, seats: Iterable[PlaceId]) -> None:
        """Coming back is a sign of life."""
        try:
            for lane, seqs in by_lane(seats).items():
                await self.line.touch(room.event_id, room.epoch, lane, seqs)
        except (LineNotReady, *REDIS_AWAY):
            return

    # -- numbers from the engine ---------------------------------------------------------------------------------------

    async def _place(self, work: LaneJoinBatch) -> None:
        """Numbers and inserts until every holder has a place or a refusal."""
        for attempt in range(ATTEMPTS_MAX):
            if not work.fresh:
                return
            numbers = await self._allocate(work, f"{work.batch_id}/{attempt}")
            if numbers is None:
                await self._place_in_db(work)
                return
            if isinstance(numbers, str):
                work.reject(_refusal(numbers))
                return
            await self._insert(work, numbers)
        if work.fresh:
            await self._place_in_db(work)

    async def _allocate(self, work: LaneJoinBatch, batch_id: str) -> Allocation | str | None:
        """Numbers, a refusal, or nothing when the engine cannot number. What we numbered ourselves lands first."""
        try:
            await self.landings.land(work.room, work.lane)
            return await self.line.allocate(work.room, work.lane, batch_id, count=len(work.fresh))
        except (LineNotReady, *REDIS_AWAY):
            return None

    async def _insert(self, work: LaneJoinBatch, numbers: Allocation) -> None:
        joins = list(work.fresh.values())[: numbers.granted]
        self._pending[numbers.member] = (work.room.event_id, work.room.epoch, work.lane)
        try:
            rows = [(join.holder, join.user_id) for join in joins]
            placed = await insert_places(
                self.db, work.room, work.lane, numbers.first, rows, fill=numbers.fill, hashes=work.hashes
            )
        finally:
            del self._pending[numbers.member]
        await self._land(work, numbers.member, set(placed.given.values()))
        work.assign({holder: (work.lane, n) for holder, n in placed.given.items()})
        work.reject_some(placed.refused)
        JOINED.labels("engine").inc(len(placed.given))
        left_over = [join.holder for join in joins if join.holder in work.fresh]
        if left_over:
            await self._settle(work, left_over)

    async def _settle(self, work: LaneJoinBatch, holders: list[str]) -> None:
        """For those whose row was refused: either they have a place, or their numbers were somebody else's.

        A second statement, because the loser of `ON CONFLICT DO NOTHING` sees no row in the same one.
        """
        async with self.db.connect() as connection:
            of = LineRepository(connection, work.room.event_id, work.room.epoch)
            found = await of.live_places(holders)
            tails = await of.lanes()
        await self._hear(work.room, found.values())
        work.found(found)
        if work.lane not in tails:
            raise StaleEpoch  # the lane was taken away; what the room is now decides
        if work.fresh:
            with suppress(*REDIS_AWAY):
                await self.line.raise_counter(work.room.event_id, work.room.epoch, work.lane, tails[work.lane][1])

    async def _land(self, work: LaneJoinBatch, member: str, landed: set[int]) -> None:
        """The places are on disk whatever happens here: what cannot land now lands later."""
        try:
            work.call_now = await self.line.commit_join(work.room, work.lane, member, landed) or work.call_now
        except (LineNotReady, *REDIS_AWAY):
            self.landings.keep(work.room, work.lane, landed)

    # -- numbers from the ledger ---------------------------------------------------------------------------------------

    async def _place_in_db(self, work: LaneJoinBatch) -> None:
        refusal = await self._refusal_by_db(work)
        if refusal:
            work.reject(refusal)
            return
        for _ in range(ATTEMPTS_MAX):
            placed = await place_in_db(self.db, work)
            work.assign({holder: (work.lane, n) for holder, n in placed.given.items()})
            work.reject_some(placed.refused)
            JOINED.labels("ledger").inc(len(placed.given))
            self.landings.keep(work.room, work.lane, set(placed.given.values()))
            work.found(await self._known(work.room, list(work.fresh)))
            if not work.fresh:
                return
        raise Unavailable

    async def _refusal_by_db(self, work: LaneJoinBatch) -> Refused | None:
        room = await self.rooms.read(work.room.event_id)
        if room.epoch != work.room.epoch:
            raise StaleEpoch
        at_ms, ends = now_ms(), room.sale_ends_at
        closed = room.state not in ("open", "paused") or (room.opens_ms or 0) > at_ms
        if closed or (ends is not None and ends.timestamp() * 1000 <= at_ms):
            return "closed"
        async with self.db.connect() as connection:
            head, tail = (await LineRepository(connection, room.event_id, room.epoch).lanes()).get(work.lane, (0, 0))
        of_lane = (lane.max_line for lane in room.options.lanes if lane.lane == work.lane)
        limits = [limit for limit in (room.max_line, *of_lane) if limit is not None]
        return "line-full" if any(tail - head >= limit for limit in limits) else None

    async def renew(self) -> None:
        """Each second: the batches whose insert is pending are alive."""
        of_lane: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        for member, where in self._pending.items():
            of_lane[where].append(member)
        for (event_id, epoch, lane), members in of_lane.items():
            await self.line.renew(event_id, epoch, lane, members)

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(
        self,
        room: WaitingRoom,
        batch: JoinBatch,
        outcomes: dict[str, Outcome],
        known: dict[str, PlaceId],
        frame: LineFrame,
        outside: set[PlaceId],
    ) -> JoinAnswer:
        heads = {lane: at.head_seq for lane, at in frame.lanes.items()} if frame.ready else {}
        seats = [outcome for outcome in outcomes.values() if isinstance(outcome, tuple)]
        states = await self._states(
            room, [s for s in seats if room.draw.rank(*s) <= heads.get(s[0], 0) or s in outside]
        )
        later = {lane.lane for lane in room.options.lanes if lane.opens_ms > frame.at_ms}
        joined = []
        for join in batch.joins:
            outcome = outcomes[join.holder]
            if isinstance(outcome, str):
                JOIN_REFUSED.labels(outcome).inc()
                joined.append(Joined(word=outcome))
            else:
                word: Literal["known", "joined"] = "known" if join.holder in known else "joined"
                early: bool = frame.state == "prequeue" or outcome[0] in later
                status = states.get(outcome, "prequeue" if early else "waiting")
                joined.append(Joined(word=word, lane=outcome[0], join_seq=outcome[1], status=status))
        return JoinAnswer(epoch=room.epoch, joined=joined, frame=frame)

    async def _states(self, room: WaitingRoom, seats: list[PlaceId]) -> dict[PlaceId, PlaceState]:
        """Which of these are called or admitted; the status call tells if the engine cannot."""
        states: dict[PlaceId, PlaceState] = {}
        try:
            for lane, seqs in by_lane(seats).items():
                _, seen = await self.line.get_status(room.event_id, room.epoch, lane, seqs)
                for seq, one in zip(seqs, seen, strict=True):
                    if one.word in ("ready", "admitted"):
                        states[lane, seq] = "ready" if one.word == "ready" else "admitted"
        except (LineNotReady, *REDIS_AWAY):
            return {}
        return states


def _strangers(room: WaitingRoom, batch: JoinBatch) -> list[str]:
    """Who may not join a room for users; one who has a place keeps it."""
    return [join.holder for join in batch.joins if join.user_id is None] if room.options.entry.signed_in_only else []


def _refusal(word: str) -> Refused:
    if word in REFUSALS:
        return REFUSALS[word]
    raise Unavailable("Too many batches are on their way.")
