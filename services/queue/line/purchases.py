"""Purchases told by the event log: who bought is done, and the slot is free for the next fan.

The purchase and the log's offsets are stored in one transaction, so an event counts once; freeing the slot follows, and
is repeated by `services/queue/reconcile.py` if gates, inventory or the engine were away. Most of the log is about other
things: it is passed over without being parsed, and offsets that come with no purchase are stored once a second.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Any

from sqlalchemy import TextClause, select
from sqlalchemy.dialects.postgresql import insert

from services.queue.line.repository import LineRepository, PlaceId
from services.queue.line.sessions import Sessions
from services.queue.tables import log_offset
from shared.contracts.events import Event
from shared.messaging.log import START, EventLog
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.queue")
BOUGHT = "order.confirmed"
BOUGHT_RAW = f'"{BOUGHT}"'.encode()
TOLD_BY = "orders"
READ_MAX, WAIT_S = 200, 1.0
STORE_EVERY_S = 1.0
RECORD_PURCHASE: TextClause = statement(__package__, "record_purchase")
Purchase = tuple[str, int, PlaceId]  # event_id, epoch, place


class Purchases:
    """Consumes the log. Any number may run: each effect happens once, and repeating it changes nothing."""

    def __init__(self, db: AsyncEngine, event_log: EventLog, sessions: Sessions) -> None:
        self._db, self._log, self._sessions = db, event_log, sessions
        self._reached: dict[str, str] = {}
        self._unstored: dict[str, str] = {}
        self._store_at_s = 0.0

    async def read(self) -> None:
        """One turn: what came after the offsets reached, or a second's wait for it."""
        self._reached = self._reached or await self._stored()
        entries = await self._log.read(self._reached, count=READ_MAX, wait_s=WAIT_S)
        events = [Event.model_validate_json(entry.body) for entry in entries if BOUGHT_RAW in entry.body]
        told = [event for event in events if event.type == BOUGHT]
        last = {entry.stream: entry.position for entry in entries}
        self._unstored |= last
        now_s = asyncio.get_running_loop().time()
        bought: list[Purchase] = []
        if told or (self._unstored and now_s >= self._store_at_s):
            bought = await self._record(told)
            self._unstored, self._store_at_s = {}, now_s + STORE_EVERY_S
        self._reached |= last
        await self._free(bought)

    async def _record(self, told: list[Event]) -> list[Purchase]:
        """Purchases and offsets, in one transaction; whose places they were."""
        bought: list[Purchase] = []
        async with self._db.begin() as connection:
            for event in told:
                rows = await connection.execute(RECORD_PURCHASE, _named(event))
                bought += [(event.event_id, row.epoch, (row.lane, row.join_seq)) for row in rows]
            for stream, position in sorted(self._unstored.items()):
                row = insert(log_offset).values(stream=stream, last_id=position)
                await connection.execute(
                    row.on_conflict_do_update(index_elements=[log_offset.c.stream], set_={"last_id": position})
                )
        return bought

    async def _stored(self) -> dict[str, str]:
        async with self._db.connect() as connection:
            stored = {row.stream: row.last_id for row in await connection.execute(select(log_offset))}
        return {stream: stored.get(stream, START) for stream in await self._log.streams(TOLD_BY)}

    async def _free(self, bought: list[Purchase]) -> None:
        """Ends the sessions of those who bought: at once, unless they hold something else as well."""
        by_room: dict[tuple[str, int], list[PlaceId]] = defaultdict(list)
        for event_id, epoch, seat in bought:
            by_room[event_id, epoch].append(seat)
        for (event_id, epoch), seats in by_room.items():
            try:
                await self._end(event_id, epoch, seats)
            except Problem as silent:
                log.warning("purchases.not_ended", extra=data(event_id=event_id, error=silent.slug))

    async def _end(self, event_id: str, epoch: int, seats: list[PlaceId]) -> None:
        async with self._db.connect() as connection:
            stands = await LineRepository(connection, event_id, epoch).get_places(seats)
        await self._sessions.end_bought(event_id, epoch, stands.values())


def _named(event: Event) -> dict[str, Any]:
    """Whose place it was, as far as the event says."""
    after = event.after or {}
    return {
        "event_id": event.event_id,
        "holder": str(after.get("holder") or ""),
        "epoch": after.get("epoch"),
        "lane": after.get("lane"),
        "join_seq": after.get("join_seq"),
    }
