"""The layout of every event as this process remembers it: sections, prices, limits, and where a seat lies in its map.

The ledger has it; `Catalogue.refresh` is called several times a second and reads again only what changed.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.basket import Basket
from services.inventory.problems import UnknownSeat, UnknownSection
from shared.problems import Unavailable, UnknownEvent

ROW_END = "|"
ROWS_SHOWN_AS = {"seated": "Reserved seating", "ga": "General Admission"}


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the venue. `price_minor` includes the fee."""

    section_id: str
    name: str
    kind: str
    rows: int
    seats_per_row: int
    capacity: int
    price_minor: int

    @property
    def type(self) -> str:
        return ROWS_SHOWN_AS[self.kind]

    def position(self, row: str, number: str) -> int:
        """Where the seat lies in the map; raises `UnknownSeat`."""
        if self.kind == "seated" and row.isdecimal() and len(row) <= 4 and row == str(int(row)):
            r, n = int(row), int(number)
            if 1 <= r <= self.rows and 1 <= n <= self.seats_per_row and number == str(n):
                return (r - 1) * (self.seats_per_row + 1) + n - 1
        raise UnknownSeat(f"There is no seat {self.section_id}-{row}-{number}.")

    def seat_id(self, position: int) -> str:
        row, number = divmod(position, self.seats_per_row + 1)
        return f"{self.section_id}-{row + 1}-{number + 1}"


@dataclass(frozen=True, slots=True)
class Layout:
    """One event: what is sold, at which price, under which rules."""

    event_id: str
    name: str
    venue: str
    currency: str
    starts_at: datetime
    hold_ttl_s: int
    pay_ttl_s: int
    grace_s: int
    tickets_per_order: int
    tickets_per_customer: int
    active_reservations_per_customer: int
    open_orders_per_customer: int
    gate_epoch: int
    version: int
    pass_floor: int
    sections: dict[str, Section]

    def section(self, section_id: str, kind: str | None = None) -> Section:
        """Raises `UnknownSection`, also for one of another kind."""
        found = self.sections.get(section_id)
        if found is None or (kind and found.kind != kind):
            raise UnknownSection(f"There is no section {section_id}{' of that kind' if found else ''}.")
        return found

    def basket(self, seat_ids: list[str], ga: dict[str, int]) -> Basket:
        """What was asked for, at today's prices; raises `UnknownSeat` or `UnknownSection`."""
        seats = []
        for seat_id in set(seat_ids):
            section_id, row, number = seat_id.split("-")
            section = self.section(section_id, "seated")
            seats.append((section_id, section.position(row, number), seat_id, section.price_minor))
        tickets = [(s, quantity, self.section(s, "ga").price_minor) for s, quantity in ga.items()]
        quantity = len(seats) + sum(ga.values())
        total_minor = sum(seat[3] for seat in seats) + sum(n * price for _, n, price in tickets)
        return Basket(tuple(sorted(seats)), tuple(sorted(tickets)), quantity, total_minor)


class Catalogue:
    """All events this process knows of."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._layouts: dict[str, Layout] = {}
        self._loaded = False

    def layout(self, event_id: str) -> Layout:
        """Raises `UnknownEvent`, or `Unavailable` while nothing has been read yet."""
        found = self._layouts.get(event_id)
        if found is None:
            raise UnknownEvent() if self._loaded else Unavailable()
        return found

    def layouts(self) -> list[Layout]:
        return list(self._layouts.values())

    async def check(self) -> None:
        if not self._loaded:
            raise Unavailable("The catalogue has not been read yet.")

    async def refresh(self) -> None:
        """Reads the events whose version or gate epoch changed."""
        known = select(tables.event.c.event_id, tables.event.c.version, tables.event.c.gate_epoch)
        async with self._engine.connect() as connection:
            seen = {row.event_id: (row.version, row.gate_epoch) for row in await connection.execute(known)}
            changed = [e for e, at in seen.items() if at != self._at(e)]
            if changed:
                of_changed = tables.event.c.event_id.in_(changed)
                events = (await connection.execute(select(tables.event).where(of_changed))).mappings().all()
                query = select(tables.section).where(tables.section.c.event_id.in_(changed))
                rows = (await connection.execute(query.order_by(tables.section.c.ordinal))).mappings().all()
                for event in events:
                    mine = [row for row in rows if row["event_id"] == event["event_id"]]
                    self._layouts[event["event_id"]] = _layout(dict(event), [dict(row) for row in mine])
        for gone in self._layouts.keys() - seen.keys():
            del self._layouts[gone]
        self._loaded = True

    def _at(self, event_id: str) -> tuple[int, int] | None:
        layout = self._layouts.get(event_id)
        return (layout.version, layout.gate_epoch) if layout else None


def _layout(event: dict[str, Any], sections: list[dict[str, Any]]) -> Layout:
    made = [
        Section(
            row["section_id"], row["name"], row["kind"], row["rows"], row["seats_per_row"], row["capacity"],
            row["price_minor"] + row["fee_minor"],
        )
        for row in sections
    ]  # fmt: skip
    return Layout(**event, sections={section.section_id: section for section in made})
