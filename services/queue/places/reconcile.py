"""Reconciles the slots of each line between Redis and the database, every two seconds.

A run counts the slots on both sides; only where the counts differ, and once a minute, it compares places. Then it
compares a bounded part of the slots and the next run continues after it.

- A holder who bought and still has a place: its end was lost because gateways or inventory were unavailable or a
  process died. It is ended now, unless there is a live reservation.
- A slot of a place that has ended in the database is freed: a place that has ended never comes back.
- A slot that only one side has in two runs in succession, with no change being written: one side has lost something,
  and Redis is rebuilt.

A call is over with its place, and nothing marks it. So the database's slots are counted among the calls made since the
oldest one that was open: with a line in order these are about as many as there are slots.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress

from services.queue import redis_keys
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import RedisLine, parse_tick_event
from services.queue.line.repository import LineRepository, PlaceId, PlaceRow
from services.queue.metrics import RECONCILED
from services.queue.places.sessions import SessionEnder
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import Quiet
from shared.errors.problems import Problem
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
SLOTS_MAX, UNWRITTEN_MAX = 5_000, 2_500
BOUGHT_MAX = 500
COUNTS_MAX = 3  # a change between the two counts makes them differ
COMPARE_EVERY = 30  # runs: counts may agree by chance
START_OF_LINE: PlaceId = (-1, -1)
BEFORE_ALL = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class _Cursor:
    """Where the next run of a room continues, since when it counts calls, and which places differed in this one, at
    which generation.
    """

    epoch: int
    runs: int = 0
    since: datetime = BEFORE_ALL
    db_from: PlaceId = START_OF_LINE
    called_from: int = 0
    active_from: int = 0
    generation: int = 0
    differing: set[PlaceId] = field(default_factory=set)


@dataclass
class SlotReconciler:
    """Reconciles every room. Any number of processes may run it."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    sessions: SessionEnder
    recovery: Recovery
    _cursors: dict[str, _Cursor] = field(default_factory=dict)

    async def run_once(self) -> Quiet | None:
        """Reconciles a part of every room; a room that is unavailable is tried again in the next run. Quiet if the
        counts of all agree.
        """
        differ = False
        for room in list(self.rooms.known.values()):
            try:
                differ |= await self._reconcile(room)
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.info("reconcile.unavailable", event_id=room.event_id, error=type(away).__name__)
            except Problem as failed:
                log.info("reconcile.not_ended", event_id=room.event_id, error=failed.slug)
        return None if differ else Quiet()

    async def _reconcile(self, room: WaitingRoom) -> bool:
        """Whether there was, or may be, something to reconcile."""
        cursor = self._cursors.get(room.event_id)
        if cursor is None or cursor.epoch != room.epoch:
            cursor = self._cursors[room.event_id] = _Cursor(room.epoch)
        compares = cursor.runs % COMPARE_EVERY == 0
        cursor.runs += 1
        async with LineRepository.reading(self.db, room.event_id, room.epoch) as repository:
            bought = await repository.bought_places(places_max=BOUGHT_MAX)
            differ = await self._counts_differ(room, repository, cursor)
            if compares or differ or cursor.differing:
                await self._compare(room, repository, cursor)
        ended = await self.sessions.end_bought(room.event_id, room.epoch, bought)
        RECONCILED.labels("bought").inc(len(ended))
        return bool(bought or differ or cursor.differing)

    async def _counts_differ(self, room: WaitingRoom, repository: LineRepository, cursor: _Cursor) -> bool:
        """Whether Redis and the database have different numbers of slots, whenever they are counted."""
        for _ in range(COUNTS_MAX):
            in_db, cursor.since = await repository.count_slots(cursor.since)
            if in_db == await self._count_in_redis(room):
                return False
        return True

    async def _count_in_redis(self, room: WaitingRoom) -> int:
        """The slots in Redis, less the changes that are not in the database yet."""
        pipe = self.line.redis.pipeline(transaction=True)
        for part in (redis_keys.called, redis_keys.active):
            pipe.zcount(part(room.event_id, room.epoch), "-inf", "(inf")
        pipe.zrangebyscore(redis_keys.unwritten(room.event_id, room.epoch), "-inf", "(inf", start=0, num=UNWRITTEN_MAX)
        called, active, changes = await pipe.execute()
        return int(called + active) - sum(1 if parse_tick_event(c).kind == "called" else -1 for c in changes)

    async def _compare(self, room: WaitingRoom, repository: LineRepository, cursor: _Cursor) -> None:
        """Compares the next part of the slots; rows are read of those that the database does not count."""
        counted = await repository.open_slots(cursor.since, cursor.db_from, slots_max=SLOTS_MAX)
        cursor.db_from = counted[-1] if len(counted) == SLOTS_MAX else START_OF_LINE
        others = {*await self._next_redis_slots(room, cursor), *cursor.differing}.difference(counted)
        rows = await repository.get_places(others) if others else {}
        opened = {*counted, *(place_id for place_id, row in rows.items() if _is_open(row))}
        place_ids = others | opened
        if not place_ids:
            return
        slots = await self._holding_slot(room, place_ids)
        ended = [place_id for place_id in slots if place_id in rows and rows[place_id].end_reason is not None]
        differing = {place_id for place_id in place_ids if (place_id in opened) != (place_id in slots)}
        await self._rebuild_if_still_different(room, cursor, differing)
        if ended:
            await self.sessions.free_slots(room.event_id, room.epoch, ended)
            RECONCILED.labels("freed").inc(len(ended))

    async def _next_redis_slots(self, room: WaitingRoom, cursor: _Cursor) -> list[PlaceId]:
        """The places of the next part of the slots in Redis."""
        pipe = self.line.redis.pipeline(transaction=False)
        for part, start in ((redis_keys.called, cursor.called_from), (redis_keys.active, cursor.active_from)):
            pipe.zrangebyscore(part(room.event_id, room.epoch), "-inf", "(inf", start=start, num=SLOTS_MAX)
        called, active = await pipe.execute()
        cursor.called_from = cursor.called_from + SLOTS_MAX if len(called) == SLOTS_MAX else 0
        cursor.active_from = cursor.active_from + SLOTS_MAX if len(active) == SLOTS_MAX else 0
        ranks = (tuple(map(int, place.split(b":"))) for place in (*called, *active))
        return [(lane, room.ranking.entry(lane, rank)) for lane, rank in ranks]

    async def _holding_slot(self, room: WaitingRoom, place_ids: Collection[PlaceId]) -> set[PlaceId]:
        """Those of the places that have a slot in Redis now."""
        names = [f"{lane}:{room.ranking.rank(lane, seq)}" for lane, seq in place_ids]
        pipe = self.line.redis.pipeline(transaction=False)
        for part in (redis_keys.called, redis_keys.active):
            pipe.zmscore(part(room.event_id, room.epoch), names)
        called, active = await pipe.execute()
        return set(compress(place_ids, (a is not None or b is not None for a, b in zip(called, active, strict=True))))

    async def _rebuild_if_still_different(
        self, room: WaitingRoom, cursor: _Cursor, differing: Iterable[PlaceId]
    ) -> None:
        """Rebuilds Redis if places differ for the second time."""
        pipe = self.line.redis.pipeline(transaction=False)
        pipe.hget(redis_keys.room(room.event_id), "generation")
        pipe.zrangebyscore(redis_keys.unwritten(room.event_id, room.epoch), "-inf", "(inf", start=0, num=UNWRITTEN_MAX)
        generation, changes = await pipe.execute()
        being_written = {(c.lane, room.ranking.entry(c.lane, c.join_seq)) for c in map(parse_tick_event, changes)}
        differing = set(differing) - being_written if len(changes) < UNWRITTEN_MAX else set()
        still_different = differing & cursor.differing if int(generation or 0) == cursor.generation else set()
        cursor.generation, cursor.differing = int(generation or 0), differing
        if still_different and await self.recovery.rebuild(room.event_id, differs_in=cursor.generation):
            log.warning("reconcile.rebuilt", event_id=room.event_id, places=sorted(still_different)[:5])
            RECONCILED.labels("rebuilt").inc()


def _is_open(row: PlaceRow) -> bool:
    """Whether this place has a slot by the database."""
    return row.end_reason is None and row.state in ("called", "claimed")
