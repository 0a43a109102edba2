"""Filling the engine from the ledger: after it lost a room, was restarted, or gave way to another process.

The fence comes first: the filling's number rises in the ledger while nobody writes, so whatever was numbered, called or
claimed by an older filling is refused from then on; only then is the ledger read.
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
from services.queue.line.repository import FENCE_ALONE, LaneTotals, LineRepository
from services.queue.lottery.ranking import Ranking
from services.queue.metrics import REBUILDS
from services.queue.rooms.model import WaitingRoom, read
from services.queue.rooms.store import Rooms
from services.queue.tables import room as room_table
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, identities, identity
from shared.runtime.logging import data

log = logging.getLogger("onsale.queue")
Pair = str | int
BREATHE_EVERY = 4096
WORD_BYTES = 8
FILLING_MAX_MS, LOOK_AGAIN_S = 5_000, 0.05
OPEN_CALLS, TAKEN_PLACES, ENDED_PLACES = (
    statement(__package__, verb) for verb in ("open_calls", "taken_places", "ended_places")
)


@dataclass
class RebuildSnapshot:
    """What the ledger tells of a room's line."""

    lanes: dict[int, tuple[int, int]]
    tallies: dict[int, LaneTotals] = field(default_factory=dict)
    called: list[Pair] = field(default_factory=list)
    active: list[Pair] = field(default_factory=list)
    misses: list[Pair] = field(default_factory=list)
    taken: dict[int, bytearray] = field(default_factory=dict)
    done: dict[int, bytearray] = field(default_factory=dict)


class Recovery:
    """Watches which engine answers, and fills it."""

    def __init__(self, db: AsyncEngine, line: RedisLine, rooms: Rooms, *, ramp: bool) -> None:
        self._db, self._line, self._rooms, self._ramp = db, line, rooms, ramp
        self._filling: dict[str, asyncio.Lock] = {}

    async def watch(self) -> None:
        """Fills every room that another engine process filled."""
        rooms = list(self._rooms.known.values())
        now = await identities(self._line.redis, (redis_keys.room(room.event_id) for room in rooms))
        for room in rooms:
            with suppress(*REDIS_AWAY):  # lost while it is filled: looked at again in the next turn
                if now.get(redis_keys.room(room.event_id), room.redis_instance_id) != room.redis_instance_id:
                    await self.rebuild(room.event_id)

    async def rebuild(self, event_id: str, *, by_hand: bool = False, differs_in: int | None = None) -> bool:
        """Fills the engine unless it already holds this filling; by hand always, and when it `differs_in` this filling
        from the ledger. True if this call filled it.

        One at a time, in this process and among all: who finds a filling under way would take it for a loss, fill once
        more, and ramp the rate. A process that dies while it fills is waited for no longer than a filling may last.
        """
        async with self._filling.setdefault(event_id, asyncio.Lock()), self._alone(event_id):
            return await self._rebuild(event_id, by_hand=by_hand, differs_in=differs_in)

    @asynccontextmanager
    async def _alone(self, event_id: str) -> AsyncIterator[None]:
        name = redis_keys.filling(event_id)
        while not await self._line.redis.set(name, 1, nx=True, px=FILLING_MAX_MS):  # noqa: ASYNC110 - others fill too
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            yield
        finally:
            with suppress(*REDIS_AWAY):
                await self._line.redis.delete(name)

    async def _rebuild(self, event_id: str, *, by_hand: bool, differs_in: int | None) -> bool:
        redis_instance_id = (await identity(self._line.redis, redis_keys.room(event_id))).text()
        async with self._db.begin() as connection:
            await connection.execute(FENCE_ALONE, {"event_id": event_id})
            before = await read(connection, event_id, lock=True)
            unasked = not by_hand and before.fill != differs_in
            if unasked and before.redis_instance_id == redis_instance_id and await self._holds(before):
                self._rooms.known[event_id] = before
                return False
            await connection.execute(
                update(room_table)
                .where(room_table.c.event_id == event_id)
                .values(fill=before.fill + 1, redis_instance_id=redis_instance_id)
            )
        return await self._fill(await self._rooms.read(event_id), ramp=self._ramp and bool(before.redis_instance_id))

    async def _holds(self, room: WaitingRoom) -> bool:
        parts = redis_keys.parts(room.event_id, room.epoch, room.lanes)
        fields = await self._line.redis.hmget(redis_keys.room(room.event_id), "ready", "fill", "epoch")
        there = fields == [b"1", str(room.fill).encode(), room.draw.generation.encode()]
        return bool(there and await self._line.redis.exists(*parts) == len(parts))

    async def _fill(self, room: WaitingRoom, *, ramp: bool) -> bool:
        async with self._db.connect() as connection:
            told = await ask(connection, room.event_id, room.draw)
        room_fields = [*room.fields(), "config_version", str(room.version)]
        for lane, (head, tail) in told.lanes.items():
            room_fields += [f"head_seq:{lane}", str(head), f"join_seq:{lane}", str(tail)]
        for lane, tally in told.tallies.items():
            room_fields += [f"calls:{lane}", str(tally.calls), f"contested:{lane}", str(tally.contested)]
            room_fields += [f"due:{lane}", str(tally.due), "contests", str(tally.contests)]
        filled = await self._line.fill(
            room,
            ramp=ramp,
            fields=room_fields,
            called=told.called,
            active=told.active,
            misses=told.misses,
            bitmaps=[bytes(bits.get(lane, b"")) for lane in room.lanes for bits in (told.taken, told.done)],
        )
        REBUILDS.inc()
        level = logging.INFO if room.fill <= 1 else logging.WARNING  # the first filling is no news
        log.log(level, "engine.filled", extra=data(event_id=room.event_id, fill=room.fill, filled=filled))
        return filled


async def ask(connection: AsyncConnection, event_id: str, draw: Ranking) -> RebuildSnapshot:
    """Everything the engine must know of a line, read from the ledger; in ranks, once they are drawn."""
    of = LineRepository(connection, event_id, draw.epoch)
    told = RebuildSnapshot(await of.lanes(), await of.tallies())
    which = {"event_id": event_id, "epoch": draw.epoch}
    open_calls = await connection.execute(OPEN_CALLS, which)
    for what, bitmaps in ((TAKEN_PLACES, told.taken), (ENDED_PLACES, told.done)):
        for lane, word, bits in await connection.execute(what, which):
            _set(bitmaps, lane, word, bits)
    for row in open_calls:
        if not _has(told.done, row.lane, row.join_seq):
            _take_call(told, row, draw.rank(row.lane, row.join_seq))
    for bitmaps in (told.taken, told.done):
        for lane in draw.lanes:
            if lane in bitmaps:
                bitmaps[lane] = await _ranked(bitmaps[lane], draw, lane)
    return told


async def _ranked(bitmap: bytearray, draw: Ranking, lane: int) -> bytearray:
    """The bits of entry numbers as bits of ranks; a long one lets others work in between."""
    ranked = bytearray(max(len(bitmap), draw.lanes[lane].entrants_n // 8 + 1))
    for at, byte in enumerate(bitmap):
        for entry in (n for n in range(at * 8, at * 8 + 8) if byte & 128 >> n % 8):
            rank = draw.rank(lane, entry)
            ranked[rank // 8] |= 128 >> rank % 8
        if at % BREATHE_EVERY == BREATHE_EVERY - 1:
            await asyncio.sleep(0)
    return ranked


def _take_call(told: RebuildSnapshot, row: Any, rank: int) -> None:
    """The last call of a place that has not ended."""
    place = f"{row.lane}:{rank}"
    if row.state == "missed" and _has(told.taken, row.lane, row.join_seq):
        told.taken[row.lane][row.join_seq // 8] &= ~(128 >> row.join_seq % 8)  # an earlier call of it was written late
    misses = row.call if row.state == "missed" else row.call - 1
    if misses:
        told.misses += [place, misses]
    if row.state == "called":
        told.called += [place, row.deadline_ms]
    elif row.state == "claimed":
        told.active += [place, row.expires_at_ms]


def _set(bitmaps: dict[int, bytearray], lane: int, word: int, bits: int) -> None:
    """Puts a word in its place: as the engine counts, bit 0 is the highest of byte 0."""
    bitmap = bitmaps.setdefault(lane, bytearray())
    end = (word + 1) * WORD_BYTES
    if len(bitmap) < end:
        bitmap.extend(bytes(end - len(bitmap)))
    bitmap[end - WORD_BYTES : end] = bits.to_bytes(WORD_BYTES, "big", signed=True)


def _has(bitmaps: dict[int, bytearray], lane: int, n: int) -> bool:
    bitmap = bitmaps.get(lane, b"")
    return n // 8 < len(bitmap) and bool(bitmap[n // 8] & 128 >> n % 8)
