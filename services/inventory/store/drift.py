"""Drift: one difference between Redis and PostgreSQL, or inside PostgreSQL; and the record of what was confirmed.

Two passes see the same drift only if its values are equal. So a value holds nothing that changes while others sell: a
seat comes with its reservation, and a count is given by how far it is off.
"""

from collections.abc import Mapping, Set
from datetime import datetime
from typing import Literal, NamedTuple

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables

RECORDED_MAX = 1000
DELETE_OLD_DRIFT = text("DELETE FROM inventory.drift WHERE acted_at < clock_timestamp() - interval '30 days'")
Kind = Literal[
    "seat", "count", "hold", "selection", "usage", "database-seat", "database-remaining", "database-blocked",
    "database-oversold", "database-sold-twice",
]  # fmt: skip
OFFSETS: frozenset[Kind] = frozenset({"count", "database-remaining", "database-blocked"})


class SeatRow(NamedTuple):
    """A seat's status, in Redis its mark, and the reservation that it or its hold names."""

    status: str
    reservation_id: str | None

    def __str__(self) -> str:
        return self.status if self.reservation_id is None else f"{self.status}:{self.reservation_id}"


class Drift(NamedTuple):
    """What differs: `place` is a seat's position or the name of a count, `actual` and `expected` are of one type."""

    kind: Kind
    subject: str  # a section, a reservation or a holder
    place: int | str | None
    actual: SeatRow | int | str
    expected: SeatRow | int | str

    @property
    def is_of_database(self) -> bool:
        """Whether PostgreSQL differs from itself."""
        return self.kind.startswith("database-")

    @property
    def seat(self) -> tuple[str, int]:
        """Section and position of a seat; the position of a whole section is -1."""
        return self.subject, self.place if isinstance(self.place, int) else -1

    def texts(self) -> tuple[str, str, str]:
        """Item, actual and expected value as operators read them."""
        item = " ".join(str(part) for part in self[:3] if part is not None)
        if self.kind in OFFSETS:
            return item, f"{self.actual:+}", f"{self.expected:+}"
        return item, str(self.actual), str(self.expected)


async def record_drift(db: AsyncEngine, event_id: str, since: Mapping[Drift, datetime], corrected: Set[Drift]) -> None:
    """Writes at most `RECORDED_MAX`: those `corrected`, and those `left` for a later pass or an operator."""
    rows = []
    for drift in sorted(since, key=Drift.texts)[:RECORDED_MAX]:
        row = dict(zip(("item", "actual", "expected"), drift.texts(), strict=True))
        action = "corrected" if drift in corrected else "left"
        rows.append({"event_id": event_id, **row, "since": since[drift], "action": action})
    if rows:
        async with db.begin() as connection:
            await connection.execute(insert(tables.drift), rows)


async def delete_old_drift(db: AsyncEngine) -> None:
    """Deletes records that are older than a month."""
    async with db.begin() as connection:
        await connection.execute(DELETE_OLD_DRIFT)
