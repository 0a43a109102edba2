"""A stock change by an operator: one transaction with its locks, the places it changed, and its audit log entry.

The event's row, which sales only read, serialises operators. Every writer locks in this order: event, sections, seats.
Each change raises the event's version, by which Redis refuses what is stale.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.layout.layout import SeatPosition, Section, StockSelection
from services.inventory.problems import StockConflict, UnknownSection
from shared.audit_log import Actor, of_event
from shared.concurrency.background import wake
from shared.contracts.event_parts.allotments import Places
from shared.errors.problems import UnknownEvent, VersionMismatch

SEATS_SHOWN_MAX = 200
SEATS_MAX = 5_000  # their sections are locked meanwhile: a few tenths of a second
LOCK_EVENT = text("SELECT version FROM inventory.event WHERE event_id = :event_id FOR UPDATE")
AUDITED = ("capacity", "seats_remaining", "blocked")


@dataclass(slots=True)
class DirtySet:
    """Places that Redis must be updated for: seats, and GA sections."""

    seats: set[SeatPosition] = field(default_factory=set)
    ga: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.seats or self.ga)


@dataclass(slots=True)
class StockChange:
    """A change under way; `detail` goes into the audit log."""

    connection: AsyncConnection
    event_id: str
    version: int
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: dict[str, dict[str, int]] = field(default_factory=dict)
    dirty: DirtySet = field(default_factory=DirtySet)
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def is_any(self) -> bool:
        """Whether anything was changed."""
        return bool(self.dirty or self.detail)

    async def lock(self, section_ids: Iterable[str]) -> None:
        """Locks sections in the order of their key and reads those not read yet. Raises `UnknownSection`."""
        missing = sorted(set(section_ids) - self.sections.keys())
        if not missing:
            return
        mine = tables.section.c.event_id == self.event_id, tables.section.c.section_id.in_(missing)
        query = select(tables.section).where(*mine).order_by(tables.section.c.section_id).with_for_update()
        for row in (await self.connection.execute(query)).mappings():
            self.sections[row["section_id"]] = dict(row)
            self.before.setdefault(row["section_id"], section_counts(row))
        for section_id in missing:
            self.section(section_id)

    def section(self, section_id: str, kind: str | None = None) -> Section:
        """A locked section; raises `UnknownSection`, also for one of another kind."""
        row = self.sections.get(section_id)
        if row is None or (kind and row["kind"] != kind):
            raise UnknownSection(f"There is no section {section_id}{' of that kind' if row else ''}.")
        return Section.from_row(row)

    async def select(self, places: Places) -> StockSelection:
        """Resolves places and locks their sections. Raises `UnknownSection`, `UnknownSeat`, or `StockConflict` for more
        than `SEATS_MAX` seats.
        """
        await self.lock(section_ids(places))
        seats: set[SeatPosition] = set()
        for seat_id in places.seats:
            section_id, row, number = seat_id.split("-")
            seats.add((section_id, self.section(section_id, "seated").position(row, number)))
        for part in places.rows:
            section = self.section(part.section_id, "seated")
            first, last = (section.row_number(row) for row in part.rows)
            if first > last:
                raise StockConflict(f"Row {part.rows[0]} of {part.section_id} is behind row {part.rows[1]}.")
            width = section.seats_per_row + 1
            for row_n in range(first, last + 1):
                seats |= {(part.section_id, row_n * width + n) for n in range(section.seats_per_row)}
            if len(seats) > SEATS_MAX:
                raise StockConflict(f"At most {SEATS_MAX} seats change at a time. Nothing was changed.")
        ga: dict[str, int] = {}
        for ga_places in places.ga:
            self.section(ga_places.section_id, "ga")
            ga[ga_places.section_id] = ga.get(ga_places.section_id, 0) + ga_places.quantity
        return StockSelection(tuple(sorted(seats)), ga)

    def seat_ids(self, seats: Iterable[SeatPosition]) -> list[str]:
        """The ids of at most `SEATS_SHOWN_MAX` of these seats."""
        return [self.section(s).seat_id(position) for s, position in sorted(seats)[:SEATS_SHOWN_MAX]]

    async def write(self, *, actor: str, action: str, reason: str | None) -> None:
        """Raises the event's version and writes the audit log, if anything was changed."""
        if not self.is_any:
            return
        mine = tables.event.c.event_id == self.event_id
        raise_version = update(tables.event).where(mine).values(version=tables.event.c.version + 1)
        self.version = (await self.connection.execute(raise_version.returning(tables.event.c.version))).scalar_one()
        query = select(tables.section).where(tables.section.c.event_id == self.event_id)
        now = (await self.connection.execute(query)).mappings()
        after = {row["section_id"]: section_counts(row) for row in now if row["section_id"] in self.sections}
        if self.dirty.seats:
            self.detail |= {"seats": self.seat_ids(self.dirty.seats), "seats_count": len(self.dirty.seats)}
        await tables.audit_log.write(
            self.connection, action, Actor(actor, reason), subject=of_event(self.event_id), version=self.version,
            before={"sections": self.before}, after={"sections": after, **self.detail},
        )  # fmt: skip


def section_ids(places: Places) -> set[str]:
    """The sections that places name."""
    seats = {seat_id.partition("-")[0] for seat_id in places.seats}
    return seats | {part.section_id for part in places.rows} | {part.section_id for part in places.ga}


def section_counts(row: RowMapping) -> dict[str, int]:
    """A section's counts for the audit log."""
    return {name: row[name] for name in AUDITED}


@asynccontextmanager
async def stock_change(
    db: AsyncEngine, event_id: str, *, actor: str, action: str, reason: str | None, version: int | None = None
) -> AsyncIterator[StockChange]:
    """Begins a change; one operator at a time. An exception inside rolls all of it back.

    Raises `UnknownEvent`, or `VersionMismatch` if the stock is no longer of this version.
    """
    async with db.begin() as connection:
        now: int | None = (await connection.execute(LOCK_EVENT, {"event_id": event_id})).scalar()
        if now is None:
            raise UnknownEvent
        if version is not None and version != now:
            raise VersionMismatch(version=now)
        change = StockChange(connection, event_id, now)
        yield change
        await change.write(actor=actor, action=action, reason=reason)
    wake("inventory")  # it may have a time at which it opens
