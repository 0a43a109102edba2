"""Consumer of `order.confirmed` events: the place of a fan who bought ends, and its slot is free for the next fan.

The purchase and the log's offsets are saved in one transaction, so an event counts once. Freeing the slot follows, and
the slot reconciler repeats it if gateways, inventory or Redis were unavailable. Other events are skipped
without being parsed; offsets without a purchase are saved once a second.
"""

import asyncio
from collections import defaultdict
from typing import Any

from sqlalchemy import TextClause, select
from sqlalchemy.dialects.postgresql import insert

from services.queue.line.repository import LineRepository, PlaceId
from services.queue.places.sessions import SessionEnder
from services.queue.tables import log_offset
from shared.contracts.events import Event
from shared.errors.problems import Problem
from shared.messaging.log import START, EventLog
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
ORDER_CONFIRMED = "order.confirmed"
ORDER_CONFIRMED_RAW = f'"{ORDER_CONFIRMED}"'.encode()
STREAM = "orders"
READ_MAX, WAIT_S = 200, 1.0
SAVE_OFFSETS_EVERY_S = 1.0
MARK_BOUGHT: TextClause = statement(__package__, "mark_bought")
PlacesOfRooms = dict[tuple[str, int], list[PlaceId]]  # by event_id and epoch


class Purchases:
    """Consumes the event log. Any number may run, because every effect is idempotent."""

    def __init__(self, db: AsyncEngine, event_log: EventLog, sessions: SessionEnder) -> None:
        self._db, self._log, self._sessions = db, event_log, sessions
        self._offsets: dict[str, str] = {}
        self._unsaved_offsets: dict[str, str] = {}
        self._save_at_s = 0.0

    async def read(self) -> None:
        """Reads and applies the next events, or waits for them up to a second."""
        self._offsets = self._offsets or await self._saved_offsets()
        entries = await self._log.read(self._offsets, count=READ_MAX, wait_s=WAIT_S)
        events = [Event.model_validate_json(entry.body) for entry in entries if ORDER_CONFIRMED_RAW in entry.body]
        purchases = [event for event in events if event.type == ORDER_CONFIRMED]
        last = {entry.stream: entry.position for entry in entries}
        self._unsaved_offsets |= last
        now_s = asyncio.get_running_loop().time()
        places: PlacesOfRooms = {}
        if purchases or (self._unsaved_offsets and now_s >= self._save_at_s):
            places = await self._record(purchases)
            self._unsaved_offsets, self._save_at_s = {}, now_s + SAVE_OFFSETS_EVERY_S
        self._offsets |= last
        await self._end_sessions(places)

    async def _record(self, purchases: list[Event]) -> PlacesOfRooms:
        """Saves purchases and offsets in one transaction; the places of those who bought."""
        places: PlacesOfRooms = defaultdict(list)
        async with self._db.begin() as connection:
            for event in purchases:
                for place in await connection.execute(MARK_BOUGHT, _place_values(event)):
                    places[event.event_id, place.epoch].append((place.lane, place.join_seq))
            for stream, position in sorted(self._unsaved_offsets.items()):
                row = insert(log_offset).values(stream=stream, last_id=position)
                await connection.execute(
                    row.on_conflict_do_update(index_elements=[log_offset.c.stream], set_={"last_id": position})
                )
        return places

    async def _saved_offsets(self) -> dict[str, str]:
        async with self._db.connect() as connection:
            stored = {row.stream: row.last_id for row in await connection.execute(select(log_offset))}
        return {stream: stored.get(stream, START) for stream in await self._log.streams(STREAM)}

    async def _end_sessions(self, places: PlacesOfRooms) -> None:
        for (event_id, epoch), place_ids in places.items():
            async with LineRepository.reading(self._db, event_id, epoch) as repository:
                rows = await repository.get_places(place_ids)
            try:
                await self._sessions.end_bought(event_id, epoch, rows.values())
            except Problem as failed:
                log.warning("purchases.not_ended", event_id=event_id, error=failed.slug)


def _place_values(event: Event) -> dict[str, Any]:
    """The event's values that identify a place; those it does not name are None."""
    after = event.after or {}
    number = {name: after.get(name) for name in ("epoch", "lane", "join_seq")}
    return {"event_id": event.event_id, "holder": str(after.get("holder") or ""), **number}
