"""The layout of every event as this process remembers it: sections, prices, limits, and where a seat lies in its map.

The ledger has it; `EventCache.refresh` is called several times a second and reads again only what changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.problems import UnknownSeat, UnknownSection
from services.inventory.reservations.selection import Selection, read_selection
from shared.rules.rollout import within
from shared.web.problems import Unavailable, UnknownEvent

ROW_END = "|"
ROWS_SHOWN_AS = {"seated": "Reserved seating", "ga": "General Admission"}


class PriceTier(NamedTuple):
    """Rows of a section, first and last, that have a price of their own, fee included."""

    name: str
    first: int
    last: int
    price_minor: int


class Variant(NamedTuple):
    """How long this fan's holds last, and on which side of a comparison that is, if there is one."""

    hold_ttl_s: int
    name: str | None = None


class PriceBlock(NamedTuple):
    """Places of one price: from `first` to `last` in the section's map, whose rows are `width` apart; GA has none."""

    section_id: str
    price_minor: int
    first: int = 0
    last: int = 0
    width: int = 0


@dataclass(frozen=True)
class Section:
    """One part of the venue. `price_minor` includes the fee; some rows may have another."""

    section_id: str
    name: str
    kind: str
    rows: int
    seats_per_row: int
    capacity: int
    price_minor: int
    levels: tuple[PriceTier, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Section":
        """As the ledger has it."""
        return cls(
            row["section_id"], row["name"], row["kind"], row["rows"], row["seats_per_row"], row["capacity"],
            row["price_minor"] + row["fee_minor"], tuple(_level(level) for level in row["price_levels"]),
        )  # fmt: skip

    @property
    def type(self) -> str:
        return ROWS_SHOWN_AS[self.kind]

    @property
    def price_from_minor(self) -> int:
        return min(zone.price_minor for zone in self.zones)

    def price_of(self, position: int) -> int:
        """What the seat at this place of the map costs."""
        row = position // (self.seats_per_row + 1) + 1
        return next((level.price_minor for level in self.levels if level.first <= row <= level.last), self.price_minor)

    @cached_property
    def zones(self) -> tuple[PriceBlock, ...]:
        """The section as neighbouring rows of one price, from the front; a GA section is one zone."""
        if self.kind == "ga":
            return (PriceBlock(self.section_id, self.price_minor),)
        width, zones = self.seats_per_row + 1, list[PriceBlock]()
        for row in range(self.rows):
            price_minor, last = self.price_of(row * width), (row + 1) * width - 2
            if zones and zones[-1].price_minor == price_minor:
                zones[-1] = zones[-1]._replace(last=last)
            else:
                zones.append(PriceBlock(self.section_id, price_minor, row * width, last, width))
        return tuple(zones)

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


@dataclass(frozen=True)
class Layout:
    """One event: what is sold, at which price, under which rules."""

    event_id: str
    name: str
    venue: str
    currency: str
    starts_at: datetime
    timezone: str
    hold_ttl_s: int
    pay_ttl_s: int
    grace_s: int
    tickets_per_order: int
    tickets_per_customer: int
    active_reservations_per_customer: int
    open_orders_per_customer: int
    tour_id: str | None
    tour_tickets_per_customer: int
    avoid_single_seats: bool
    hold_ttl_b_s: int | None
    hold_ttl_b_percent: float
    oversell: dict[str, Any]
    redis_epoch: int
    version: int
    min_pass_epoch: int
    sections: dict[str, Section]

    @property
    def seated(self) -> list[str]:
        """The sections whose seats are on a map."""
        return [section_id for section_id, section in self.sections.items() if section.kind == "seated"]

    def section(self, section_id: str, kind: str | None = None) -> Section:
        """Raises `UnknownSection`, also for one of another kind."""
        found = self.sections.get(section_id)
        if found is None or (kind and found.kind != kind):
            raise UnknownSection(f"There is no section {section_id}{' of that kind' if found else ''}.")
        return found

    def variant_for(self, holder: str) -> Variant:
        """Always the same for one holder, whatever the waiting room's own shares made of them."""
        if self.hold_ttl_b_s is None or not self.hold_ttl_b_percent:
            return Variant(self.hold_ttl_s)
        in_b = within("hold_ttl", self.event_id, holder, self.hold_ttl_b_percent)
        return Variant(self.hold_ttl_b_s, "b") if in_b else Variant(self.hold_ttl_s, "a")

    def basket(self, seat_ids: list[str], ga: dict[str, int]) -> Selection:
        """What was asked for, at today's prices; raises `UnknownSeat` or `UnknownSection`."""
        seats = []
        for seat_id in set(seat_ids):
            section_id, row, number = seat_id.split("-")
            section = self.section(section_id, "seated")
            position = section.position(row, number)
            seats.append((section_id, position, seat_id, section.price_of(position)))
        return self._priced(seats, ga)

    def from_selection(self, basket: str) -> Selection:
        """What the gate picked, from its text."""
        places, tickets = read_selection(basket)
        seats = [(s, p, self.sections[s].seat_id(p), self.sections[s].price_of(p)) for s, p in places]
        return self._priced(seats, tickets)

    def best(self, *, section_id: str | None, max_price_minor: int | None) -> list[PriceBlock]:
        """Where best available looks, the dearest first; of the same price, in the order of the event file. Raises
        `UnknownSection`.
        """
        zones = _dearest_first([self.section(section_id)]) if section_id else self._zones
        return [zone for zone in zones if max_price_minor is None or zone.price_minor <= max_price_minor]

    @cached_property
    def _zones(self) -> list[PriceBlock]:
        return _dearest_first(self.sections.values())

    def _priced(self, seats: list[tuple[str, int, str, int]], ga: dict[str, int]) -> Selection:
        tickets = [(s, quantity, self.section(s, "ga").price_minor) for s, quantity in ga.items()]
        quantity = len(seats) + sum(ga.values())
        total_minor = sum(seat[3] for seat in seats) + sum(n * price for _, n, price in tickets)
        return Selection(tuple(sorted(seats)), tuple(sorted(tickets)), quantity, total_minor)


def _dearest_first(sections: Iterable[Section]) -> list[PriceBlock]:
    return sorted((zone for section in sections for zone in section.zones), key=lambda zone: -zone.price_minor)


class EventCache:
    """All events this process knows of."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
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
        known = select(tables.event.c.event_id, tables.event.c.version, tables.event.c.redis_epoch)
        async with self._db.connect() as connection:
            seen = {row.event_id: (row.version, row.redis_epoch) for row in await connection.execute(known)}
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
        return (layout.version, layout.redis_epoch) if layout else None


def _layout(event: dict[str, Any], sections: list[dict[str, Any]]) -> Layout:
    made = [Section.of(row) for row in sections]
    return Layout(**event, sections={section.section_id: section for section in made})


def _level(level: dict[str, Any]) -> PriceTier:
    first, last = level["rows"]
    return PriceTier(level["name"], first, last, level["price_minor"] + level["fee_minor"])
