"""Rebuilds a line's Redis state from PostgreSQL: after Redis lost a room, was restarted or failed over.

First the room's generation rises in the database, under the exclusive fence while nobody writes: numbers, calls and
claims of an older generation are refused from then on. Only then the database is read.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import update

from services.queue import redis_keys
from services.queue.line.redis_line import RedisLine
from services.queue.line.repository import LaneTotals, LineRepository
from services.queue.metrics import REBUILDS
from services.queue.rooms.model import WaitingRoom, read
from services.queue.rooms.store import EXCLUSIVE_LOCK, Rooms
from services.queue.tables import room as room_table
from shared.concurrency.background import Quiet
from shared.contracts.ranking import Ranking
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, identities, identity
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
YIELD_EVERY = 4096
WORD_BYTES = 8
LANE_TOTALS = ("calls", "contended_calls", "fair_share")  # by lane; the periods are the room's
REBUILD_MAX_MS, RETRY_S = 5_000, 0.05
WATCH_QUIET_S = 2.0
OPEN_CALLS, TAKEN_PLACES, ENDED_PLACES = (
    statement(__package__, verb) for verb in ("open_calls", "taken_places", "ended_places")
)


@dataclass
class RecoverySnapshot:
    """The state of a line in the database, as Redis holds it: by `lane:rank`, and a bitmap for each lane."""

    lanes: dict[int, tuple[int, int]]
    lane_totals: dict[int, LaneTotals] = field(default_factory=dict)
    called: dict[str, int] = field(default_factory=dict)
    active: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    taken: dict[int, bytearray] = field(default_factory=dict)
    done: dict[int, bytearray] = field(default_factory=dict)


class Recovery:
    """Watches which Redis instance answers, and rebuilds its state."""

    def __init__(self, db: AsyncEngine, line: RedisLine, rooms: Rooms, *, ramp: bool) -> None:
        self._db, self._line, self._rooms, self._ramp = db, line, rooms, ramp
        self._rebuilding: dict[str, asyncio.Lock] = {}

    async def watch(self) -> Quiet:
        """Rebuilds every room whose state was built on another Redis instance."""
        rooms = list(self._rooms.known.values())
        now = await identities(self._line.redis, (redis_keys.room(room.event_id) for room in rooms))
        for room in rooms:
            with suppress(*REDIS_AWAY):  # lost during the rebuild: tried again in the next run
                if now.get(redis_keys.room(room.event_id), room.redis_instance_id) != room.redis_instance_id:
                    await self.rebuild(room.event_id)
        return Quiet(WATCH_QUIET_S)

    async def rebuild(self, event_id: str, *, force: bool = False, differs_in: int | None = None) -> bool:
        """Rebuilds Redis unless it holds the present generation completely; with `force` always, and if it differs from
        the database in the generation `differs_in`. True if this call rebuilt it.

        One at a time over all processes: another one would take the incomplete state for a loss, rebuild once more and
        ramp the rate. The lock of a process that dies expires after REBUILD_MAX_MS.
        """
        async with self._rebuilding.setdefault(event_id, asyncio.Lock()), self._exclusive(event_id):
            return await self._rebuild_if_needed(event_id, force=force, differs_in=differs_in)

    @asynccontextmanager
    async def _exclusive(self, event_id: str) -> AsyncIterator[None]:
        name = redis_keys.rebuild_lock(event_id)
        while not await self._line.redis.set(name, 1, nx=True, px=REBUILD_MAX_MS):  # noqa: ASYNC110 - a lock in Redis
            await asyncio.sleep(RETRY_S)
        try:
            yield
        finally:
            with suppress(*REDIS_AWAY):
                await self._line.redis.delete(name)

    async def _rebuild_if_needed(self, event_id: str, *, force: bool, differs_in: int | None) -> bool:
        redis_instance_id = (await identity(self._line.redis, redis_keys.room(event_id))).text()
        async with self._db.begin() as connection:
            await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
            before = await read(connection, event_id, lock=True)
            automatic = not force and before.generation != differs_in
            if automatic and before.redis_instance_id == redis_instance_id and await self._is_complete(before):
                self._rooms.known[event_id] = before
                return False
            await connection.execute(
                update(room_table)
                .where(room_table.c.event_id == event_id)
                .values(generation=before.generation + 1, redis_instance_id=redis_instance_id)
            )
        room = await self._rooms.read(event_id)
        return await self._write_redis(room, ramp=self._ramp and bool(before.redis_instance_id))

    async def _is_complete(self, room: WaitingRoom) -> bool:
        parts = redis_keys.parts(room.event_id, room.epoch, room.lanes)
        fields = await self._line.redis.hmget(redis_keys.room(room.event_id), "ready", "generation", "epoch")
        current = fields == [b"1", str(room.generation).encode(), room.ranking.epoch_token.encode()]
        return bool(current and await self._line.redis.exists(*parts) == len(parts))

    async def _write_redis(self, room: WaitingRoom, *, ramp: bool) -> bool:
        async with self._db.connect() as connection:
            snapshot = await read_snapshot(connection, room.event_id, room.ranking)
        room_fields = {**room.redis_fields(), "config_version": room.version}
        for lane, (head, tail) in snapshot.lanes.items():
            room_fields |= {f"head_seq:{lane}": head, f"join_seq:{lane}": tail}
        for lane, totals in snapshot.lane_totals.items():
            room_fields |= {f"{name}:{lane}": getattr(totals, name) for name in LANE_TOTALS}
            room_fields["contention_periods"] = totals.contention_periods
        written = await self._line.rebuild(
            room,
            ramp=ramp,
            fields=room_fields,
            called=snapshot.called,
            active=snapshot.active,
            misses=snapshot.misses,
            bitmaps=[bytes(bits.get(lane, b"")) for lane in room.lanes for bits in (snapshot.taken, snapshot.done)],
        )
        REBUILDS.inc()
        level = logging.INFO if room.generation <= 1 else logging.WARNING  # the first build of a room is no incident
        log.log(level, "redis.rebuilt", event_id=room.event_id, generation=room.generation, written=written)
        return written


async def read_snapshot(connection: AsyncConnection, event_id: str, ranking: Ranking) -> RecoverySnapshot:
    """Reads a line's state from the database, in ranks."""
    repository = LineRepository(connection, event_id, ranking.epoch)
    snapshot = RecoverySnapshot(await repository.lanes(), await repository.lane_totals())
    values = {"event_id": event_id, "epoch": ranking.epoch}
    open_calls = await connection.execute(OPEN_CALLS, values)
    for query, bitmaps in ((TAKEN_PLACES, snapshot.taken), (ENDED_PLACES, snapshot.done)):
        for lane, word, bits in await connection.execute(query, values):
            _set_word(bitmaps, lane, word, bits)
    for row in open_calls:
        if not _is_set(snapshot.done, row.lane, row.join_seq):
            _add_call(snapshot, row, ranking.rank(row.lane, row.join_seq))
    for bitmaps in (snapshot.taken, snapshot.done) if ranking.ranked else ():
        for lane, bitmap in bitmaps.items():
            bitmaps[lane] = await _in_ranks(bitmap, ranking, lane)
    return snapshot


async def _in_ranks(bitmap: bytearray, ranking: Ranking, lane: int) -> bytearray:
    """Moves the bits of the numbers of joins to their ranks; yields to other tasks in between."""
    ranked = bytearray(len(bitmap))
    for at in range(0, len(bitmap), YIELD_EVERY):
        numbers = [n for n in range(at * 8, min(at + YIELD_EVERY, len(bitmap)) * 8) if bitmap[n // 8] & 128 >> n % 8]
        for rank in ranking.ranks(lane, numbers):
            ranked.extend(bytes(max(0, rank // 8 + 1 - len(ranked))))
            ranked[rank // 8] |= 128 >> rank % 8
        await asyncio.sleep(0)
    return ranked


def _add_call(snapshot: RecoverySnapshot, row: Any, rank: int) -> None:
    """Adds the last call of a live place."""
    place = f"{row.lane}:{rank}"
    if row.state == "missed" and _is_set(snapshot.taken, row.lane, row.join_seq):
        byte, bit = divmod(row.join_seq, 8)
        snapshot.taken[row.lane][byte] &= ~(128 >> bit)  # an earlier call of it was saved late
    misses = row.call if row.state == "missed" else row.call - 1
    if misses:
        snapshot.misses[place] = misses
    if row.state == "called":
        snapshot.called[place] = row.deadline_ms
    elif row.state == "claimed":
        snapshot.active[place] = row.expires_at_ms


def _set_word(bitmaps: dict[int, bytearray], lane: int, word: int, bits: int) -> None:
    """Writes a 64-bit word to its position. As in Redis, bit 0 is the highest bit of byte 0."""
    bitmap = bitmaps.setdefault(lane, bytearray())
    end = (word + 1) * WORD_BYTES
    if len(bitmap) < end:
        bitmap.extend(bytes(end - len(bitmap)))
    bitmap[end - WORD_BYTES : end] = bits.to_bytes(WORD_BYTES, "big", signed=True)


def _is_set(bitmaps: dict[int, bytearray], lane: int, n: int) -> bool:
    bitmap = bitmaps.get(lane, b"")
    return n // 8 < len(bitmap) and bool(bitmap[n // 8] & 128 >> n % 8)
