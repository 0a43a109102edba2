"""A stock change by an operator: one transaction with its locks, the places it changed, and its audit log entry.

The event's row, which sales only read, serialises operators. Every writer locks in this order: event, sections, seats.
Each change raises the event's version, by which Redis refuses what is stale.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory import tables
from services.inventory.layout.layout import Section
from services.inventory.layout.selection import POOL, SeatPosition, section_of
from services.inventory.problems import StockConflict, UnknownSection
from shared.audit_log import Actor, of_event

SEATS_SHOWN_MAX, NAMED_MAX = 200, 20
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
        """Locks sections with their pools, in the order of their key, and reads those not read yet. Raises
        `UnknownSection`.
        """
        missing = sorted(set(section_ids) - self.sections.keys())
        if not missing:
            return
        named = func.split_part(tables.section.c.section_id, POOL, 1).in_(missing)
        mine = tables.section.c.event_id == self.event_id, or_(tables.section.c.section_id.in_(missing), named)
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

    def pools_of(self, section_id: str) -> list[str]:
        """The pools of a locked section."""
        return [s for s in self.sections if s != section_id and section_of(s) == section_id]

    def pooled(self, section_id: str) -> int:
        """The places in the pools of a locked section."""
        return sum(self.sections[pool]["capacity"] for pool in self.pools_of(section_id))

    def capacity(self, section_id: str) -> int:
        """All places of a locked section."""
        return int(self.sections[section_id]["capacity"]) + self.pooled(section_id)

    def conflict(self, seats: Mapping[str, list[SeatPosition]]) -> StockConflict:
        """A problem that names seats by why they cannot change."""
        by_reason = {why: self.seat_ids(some) for why, some in seats.items()}
        reasons = [f"{_abbreviated(ids, len(seats[why]))} {why}" for why, ids in by_reason.items()]
        return StockConflict(f"These seats cannot change: {'; '.join(reasons)}. Nothing was changed.", seats=by_reason)

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


def _abbreviated(seat_ids: list[str], n: int) -> str:
    more = f" and {n - NAMED_MAX} more are" if n > NAMED_MAX else " are" if n > 1 else " is"
    return ", ".join(seat_ids[:NAMED_MAX]) + more


def section_counts(row: RowMapping) -> dict[str, int]:
    """A section's counts for the audit log."""
    return {name: row[name] for name in AUDITED}
