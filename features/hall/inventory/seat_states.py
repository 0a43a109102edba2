"""The states of all seats of an event: for the map of the hall, and for the streams that show it.

A version names one state in every process: a script compares the maps with the last reading and raises the version if
they differ. Whoever reads them publishes them, too, while a stream shows them. Selling does nothing for either.
"""

import asyncio
import math
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import NamedTuple

from cachetools import TTLCache
from sqlalchemy.ext.asyncio import AsyncEngine

from features.hall import seat_codes
from features.hall.hall_map import OpenSeats, counted
from features.hall.inventory.events import EventHall, map_order
from features.hall.seat_codes import SeatsFrame, seats_channel, seats_watched_key
from services.inventory.layout.layout import Layout
from services.inventory.layout.offers import Places
from services.inventory.layout.selection import content_hash
from services.inventory.redis_stock.client import RedisStock, load_script
from services.inventory.store.snapshot import read_maps
from shared.contracts.event_parts.traits import Run, joined
from shared.errors.problems import Unavailable
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import REDIS_AWAY, reply_status
from shared.runtime.clock import now_ms

CACHE_S, CACHE_AWAY_S = 0.25, 1.0
_FREE = re.compile(rb"\0+")


class SeatState(NamedTuple):
    """One byte a seat, in map order: in `codes` free seats that not everybody may buy are held, in `kept` free.
    `sections` are those with seats, and how many. Version 0 is PostgreSQL's, while Redis is not ready.
    """

    epoch: int
    version: int
    at_ms: int
    sections: tuple[tuple[str, int], ...]
    codes: bytes
    kept: bytes

    def of(self, names: Iterable[str]) -> bytes:
        """The seats of these sections, in map order."""
        wanted, parts, first = set(names), list[bytes](), 0
        for section_id, seats in self.sections:
            if section_id in wanted:
                parts.append(self.codes[first : first + seats])
            first += seats
        return b"".join(parts)

    def open_seats(self, layout: Layout, places: Iterable[Places]) -> OpenSeats:
        """The seats of these places, which are this layout's."""
        runs: dict[str, list[Run]] = {}
        for section_id, own in ((section_id, own) for each in places for section_id, own in each.items()):
            runs.setdefault(section_id, []).extend(counted(own, layout.sections[section_id].seats_per_row))
        free, first = dict[str, list[Run]](), 0
        for section_id, seats in self.sections:
            kept = self.kept[first : first + seats]
            found = [each.span() for a, b in runs.get(section_id, ()) for each in _FREE.finditer(kept, a, b + 1)]
            if found:
                free[section_id] = joined((start, end - 1) for start, end in found)
            first += seats
        return OpenSeats(seats=sum(b - a + 1 for own in runs.values() for a, b in own), free=free)


def reading_key(event_id: str) -> str:
    """Hash: the last reading of all seats: its epoch, version and marks. If it is lost, the next has a new version."""
    return f"inventory:{{{event_id}}}:seats"


class SeatStates:
    """Reads and publishes the states of seats. Concurrent readers of an event share one reading."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, snapshots: SnapshotPublisher) -> None:
        redis_stock.scripts["read_seats"] = load_script("read_seats", __package__)
        self._db, self._redis_stock, self._snapshots = db, redis_stock, snapshots
        self._last: dict[str, SeatState] = {}
        self._fresh: TTLCache[str, SeatState] = TTLCache(math.inf, CACHE_S)
        self._from_db: TTLCache[str, SeatState] = TTLCache(math.inf, CACHE_AWAY_S)
        self._locks: dict[str, asyncio.Lock] = {}

    async def read(self, layout: Layout) -> SeatState:
        """The state of a moment ago. Raises `NoMap`, `Unavailable`."""
        layout.part(EventHall).map(layout)
        event_id = layout.event_id
        async with self._locks.setdefault(event_id, asyncio.Lock()):
            state = self._fresh.get(event_id) or self._from_db.get(event_id)
            if state is None or state.epoch != layout.redis_epoch:
                state = await self._read(layout)
            return state

    async def frame(self, layout: Layout) -> SeatsFrame:
        """The same, as a frame."""
        return _frame(layout.event_id, await self.read(layout))

    def key(self, event_id: str) -> str:
        return seats_watched_key(event_id)

    async def publish(self, layout: Layout, *, again: bool) -> None:
        """Publishes what has changed; with `again` also what has not. Does nothing while Redis is not ready, and for an
        event without a map. Raises what Redis raised.
        """
        if layout.part(EventHall).map_hash(layout) is not None:
            async with self._locks.setdefault(layout.event_id, asyncio.Lock()):
                await self._advance(layout, again=again)

    async def _read(self, layout: Layout) -> SeatState:
        try:
            state = await self._advance(layout)
        except REDIS_AWAY:
            state = None
        if state is None:
            state = self._from_db[layout.event_id] = await self._read_db(layout)
        return state

    async def _advance(self, layout: Layout, *, again: bool = False) -> SeatState | None:
        """The state now, which is published if this reading is the first of it; `None` while Redis is not ready."""
        event_id, sections = layout.event_id, map_order(layout)
        known = self._last.get(event_id)
        if known is not None and known.epoch != layout.redis_epoch:
            known = None
        reply = await self._redis_stock.call(
            "read_seats", event_id, seats=reading_key(event_id), watched=seats_watched_key(event_id),
            epoch=layout.redis_epoch, known=known.version if known else 0,
            clock_offset_ms=self._redis_stock.clock_offset_ms, reserved=_reserved_text(layout),
            sections=[section_id for section_id, _ in sections],
        )  # fmt: skip
        if reply_status(reply) != "read":
            return None
        version, at_ms, changed, watched = (int(part) for part in reply[1:5])
        same = known if known and known.version == version else None
        codes, kept = (same.codes, same.kept) if same else _codes(layout, reply[5])
        state = SeatState(layout.redis_epoch, version, at_ms, sections, codes=codes, kept=kept)
        self._last[event_id] = self._fresh[event_id] = state
        if watched and (changed or again):
            await self._snapshots.publish(seats_channel(event_id), _frame(event_id, state))
        return state

    async def _read_db(self, layout: Layout) -> SeatState:
        maps = await read_maps(self._db, layout.event_id)
        sections = tuple(
            (section_id, len(seat_codes.from_marks(maps[section_id].encode()))) for section_id in sorted(maps)
        )
        if sections != map_order(layout):
            raise Unavailable("The hall is being changed. Try again shortly.")
        marks = "".join(maps[section_id] for section_id, _ in sections).encode()
        return SeatState(layout.redis_epoch, 0, now_ms(), sections, *_codes(layout, marks))


def _codes(layout: Layout, marks: bytes) -> tuple[bytes, bytes]:
    """The states of these maps, in map order: to everybody free seats that only some may buy are held; and as they are
    for those.
    """
    kept = seat_codes.from_marks(marks)
    if not layout.exclusive.seats:
        return kept, kept
    shown, start = bytearray(marks), 0
    for section_id, _ in map_order(layout):
        for first, last in layout.exclusive.seats.get(section_id, ()):
            run = slice(start + first, start + last + 1)
            shown[run] = shown[run].replace(b".", b"h")
        start += layout.sections[section_id].last + 1
    return seat_codes.from_marks(bytes(shown)), kept


def _reserved_text(layout: Layout) -> str:
    """Names which seats not everybody may buy: with others of them the same marks are another state."""
    return content_hash(str(sorted(layout.exclusive.seats.items()))) if layout.exclusive.seats else ""


def _frame(event_id: str, state: SeatState) -> SeatsFrame:
    return SeatsFrame(
        event_id=event_id, epoch=state.epoch, version=state.version, ready=state.version > 0, at_ms=state.at_ms,
        sections=list(state.sections), seats=b64encode(seat_codes.pack(state.codes)).decode(),
    )  # fmt: skip
