"""The show of an event, as tickets and mail describe it: name, venue, time and section names, from the event file."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.model.order import TypeName, TypeNames
from services.orders.tables import event
from shared.concurrency.coalescing import CachedReads
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.names import NamesWanted
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.runtime.clock import zone_of
from shared.words.words import Words

SHOWS_MAX, SHOW_KEPT_S = 1_000, 60.0


@dataclass(frozen=True, slots=True)
class ShowInfo:
    """A show as it is printed. One without an event file is called by its id."""

    event_id: str
    name: str
    venue: str = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    zone: str = "UTC"
    section_names: Mapping[str, str] | None = None
    rehearsal: bool = False
    names: NamesWanted = "none"
    names_until: datetime | None = None

    @property
    def names_end(self) -> datetime | None:
        """Until when buyers may change names; None if nobody knows when it starts."""
        return self.names_until or self.starts_at

    def when(self, text: Words) -> str:
        """Its start on the clock of its venue; empty if unknown."""
        return text.moment(self.starts_at) if self.starts_at else ""

    def place(self, section_id: str, seat_id: str | None, text: Words) -> str:
        """A seat or a section in words: `Stalls, row 7, seat 12`."""
        name = (self.section_names or {}).get(section_id, section_id)
        if seat_id is None:
            return name
        _, row, number = seat_id.split("-")
        return text("seat", section=name, row=row, number=number)

    def ticket(self, section_id: str, seat_id: str | None, price_type: TypeName | None, text: Words) -> str:
        """The place, and the price type where the event has types: `Stalls, row 7, seat 12 · Child`."""
        place = self.place(section_id, seat_id, text)
        return text("ticket_type", place=place, type=price_type.name) if price_type else place


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str) -> bool:
    """Stores the show in the caller's transaction. True if that changed anything."""
    fields = {
        "name": file.name, "venue": file.venue, "starts_at": file.starts_at, "ends_at": file.ends_at,
        "currency": file.currency, "timezone": file.zone, "rehearsal": file.rehearsal,
        "section_names": {section.section_id: section.name for section in file.sections},
        "price_types": TypeNames.of(file.price_types).json(),
        "names": file.sales.names, "names_until": file.sales.names_until,
    }  # fmt: skip
    put = insert(event).values(event_id=file.event_id, applied_by=actor, **fields)
    differs = func.row(*(event.c[name] for name in fields)).is_distinct_from(
        func.row(*(put.excluded[name] for name in fields))
    )
    put = put.on_conflict_do_update(
        index_elements=[event.c.event_id],
        set_={**{name: put.excluded[name] for name in fields}, "applied_by": actor, "applied_at": func.now()},
        where=differs,
    )
    return bool((await connection.execute(put)).rowcount)


async def read_show(db: AsyncEngine, event_id: str) -> ShowInfo:
    """The show of this event; for an event without an event file, one that is named by the id."""
    async with db.connect() as connection:
        row = (await connection.execute(select(event).where(event.c.event_id == event_id))).first()
    if row is None:
        return ShowInfo(event_id, event_id)
    starts_at = row.starts_at.astimezone(zone_of(row.timezone))
    return ShowInfo(
        event_id, row.name, venue=row.venue, starts_at=starts_at, ends_at=row.ends_at, zone=row.timezone,
        section_names=row.section_names, rehearsal=row.rehearsal, names=row.names, names_until=row.names_until,
    )  # fmt: skip


class ShowCache:
    """Shows by their events, each kept for a minute. Concurrent readers share a read."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._shows: CachedReads[ShowInfo] = CachedReads(kept_s=SHOW_KEPT_S, keys_max=SHOWS_MAX)
        self.close = self._shows.close

    async def read(self, event_id: str) -> ShowInfo:
        return await self._shows.get(event_id, partial(read_show, self._db, event_id))
