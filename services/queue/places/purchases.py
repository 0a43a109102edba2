"""Consumer of `order.confirmed` events: the place of a fan who bought ends, and its slot is free for the next fan.

A batch of purchases is one look-up of their places, one revocation at inventory, and one write: each place is written
once, bought and ended, in the transaction that saves the log's offsets. An event whose transaction fails is read again,
and every step may be repeated. A place whose pass could not be revoked, because gateways or inventory were unavailable
or its holder has another reservation, is only marked as bought, and the slot reconciler ends it later. Other events are
skipped without being parsed; offsets without a purchase are saved once a second.

One process of several consumes the log, as long as it renews its lease in Redis; when that ends, the next one goes on
from the saved offsets.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.queue.line.repository import LineRepository, PlaceId, PlaceRow
from services.queue.metrics import ENDED
from services.queue.places.sessions import SessionEnder, with_pass
from services.queue.redis_keys import purchases_lease
from services.queue.tables import log_offset
from shared.contracts.frames import Event
from shared.errors.problems import Problem
from shared.messaging.log import START, EventLog
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
ORDER_CONFIRMED = "order.confirmed"
ORDER_CONFIRMED_RAW = f'"{ORDER_CONFIRMED}"'.encode()
STREAM = "orders"
NUMBERS = ("epoch", "lane", "join_seq")
READ_MAX, WAIT_S = 200, 3.0
SAVE_OFFSETS_EVERY_S = 1.0
LEASE_S, ASK_AGAIN_S = 6.0, 1.0  # a lease outlasts a wait for events
FIND_BOUGHT, MARK_BOUGHT = statement(__package__, "find_bought"), statement(__package__, "mark_bought")
Line = tuple[str, int]  # event_id and epoch
Bought = dict[Line, dict[PlaceId, PlaceRow]]
Ended = dict[Line, set[PlaceId]]


class Purchases:
    """Consumes the event log. Any number may run: every effect is idempotent, and the lease spares all but one of them
    the work. While Redis is away there is none.
    """

    def __init__(self, db: AsyncEngine, redis: Redis, event_log: EventLog, sessions: SessionEnder) -> None:
        self._db, self._redis, self._log, self._sessions = db, redis, event_log, sessions
        self._name = uuid.uuid4().hex
        self._single = db.execution_options(isolation_level="AUTOCOMMIT")
        self._offsets: dict[str, str] = {}
        self._unsaved_offsets: dict[str, str] = {}
        self._save_at_s = 0.0

    async def read(self) -> None:
        """Reads and applies the next events, or waits for them a while; only waits while another process reads."""
        if not await self._has_lease():
            self._offsets = {}
            await asyncio.sleep(ASK_AGAIN_S)
            return
        self._offsets = self._offsets or await self._saved_offsets()
        entries = await self._log.read(self._offsets, count=READ_MAX, wait_s=WAIT_S)
        events = [Event.model_validate_json(entry.body) for entry in entries if ORDER_CONFIRMED_RAW in entry.body]
        purchases = [event for event in events if event.type == ORDER_CONFIRMED]
        last = {entry.stream: entry.position for entry in entries}
        self._unsaved_offsets |= last
        now_s = asyncio.get_running_loop().time()
        ended: Ended = {}
        if purchases or (self._unsaved_offsets and now_s >= self._save_at_s):
            bought = await self._find(purchases)
            revoked = {line: await self._revoke(line, rows.values()) for line, rows in bought.items()}
            ended = await self._record(bought, revoked)
            self._unsaved_offsets, self._save_at_s = {}, now_s + SAVE_OFFSETS_EVERY_S
        self._offsets |= last
        for (event_id, epoch), place_ids in ended.items():
            await self._sessions.free_slots(event_id, epoch, place_ids)

    async def end(self) -> None:
        """Leaves the log to another process."""
        with suppress(*REDIS_AWAY):
            if await self._has_lease():
                await self._redis.delete(purchases_lease())

    async def _has_lease(self) -> bool:
        """Whether the lease is this process's, which begins or renews it."""
        key, lease_ms = purchases_lease(), round(LEASE_S * 1000)
        try:
            if await self._redis.set(key, self._name, nx=True, px=lease_ms):
                return True
            if await self._redis.get(key) != self._name.encode():
                return False
            return bool(await self._redis.pexpire(key, lease_ms))
        except REDIS_AWAY:
            return True

    async def _find(self, purchases: Sequence[Event]) -> Bought:
        """The live places of those who bought."""
        found: Bought = defaultdict(dict)
        if purchases:
            async with self._single.connect() as connection:
                for event_id, epoch, *columns in await connection.execute(FIND_BOUGHT, _columns(purchases)):
                    row = PlaceRow(*columns)
                    found[event_id, epoch][row.place_id] = row
        return found

    async def _revoke(self, line: Line, rows: Iterable[PlaceRow]) -> set[PlaceId]:
        """Revokes the passes of places that are to end; which places may end now."""
        try:
            return set(await self._sessions.revoke(*line, with_pass(rows), end_reason="completed"))
        except Problem as failed:
            log.warning("purchases.not_ended", event_id=line[0], error=failed.slug)
            return set()

    async def _record(self, bought: Bought, revoked: Ended) -> Ended:
        """Saves purchases and offsets in one transaction; the places that ended."""
        ended: Ended = {}
        async with self._db.begin() as connection:
            if bought:
                ended = await _mark_bought(connection, bought, revoked)
            for stream, position in sorted(self._unsaved_offsets.items()):
                row = insert(log_offset).values(stream=stream, last_id=position)
                await connection.execute(
                    row.on_conflict_do_update(index_elements=[log_offset.c.stream], set_={"last_id": position})
                )
        ENDED.labels("completed").inc(sum(map(len, ended.values())))
        return ended

    async def _saved_offsets(self) -> dict[str, str]:
        async with self._db.connect() as connection:
            stored = {row.stream: row.last_id for row in await connection.execute(select(log_offset))}
        return {stream: stored.get(stream, START) for stream in await self._log.streams(STREAM)}


async def _mark_bought(connection: AsyncConnection, bought: Bought, revoked: Ended) -> Ended:
    marks = [(*line, *at, at in revoked[line]) for line, rows in bought.items() for at in rows]
    names = ("event_ids", "epochs", "lanes", "join_seqs", "ended")
    ended: Ended = defaultdict(set)
    for row in await connection.execute(
        MARK_BOUGHT, dict(zip(names, map(list, zip(*marks, strict=True)), strict=True))
    ):
        if row.has_ended:
            ended[row.event_id, row.epoch].add((row.lane, row.join_seq))
    for line, place_ids in ended.items():
        await LineRepository(connection, *line).emit(completed=place_ids)
    return ended


def _columns(purchases: Sequence[Event]) -> dict[str, list[Any]]:
    """The values of the events that identify places, as arrays; what an event does not name is None."""
    named = [event.after or {} for event in purchases]
    columns: dict[str, list[Any]] = {f"{name}s": [after.get(name) for after in named] for name in NUMBERS}
    holders = [str(after.get("holder") or "") for after in named]
    return {"event_ids": [event.event_id for event in purchases], "holders": holders, **columns}
