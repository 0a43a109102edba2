"""An event's layout: sections, prices, sales rules, and the position of each seat in its section's map; and a selection
of its places at these prices.

A section's map is a string of rows, each seat one character, the rows joined by `ROW_END`; a position is an offset in
it. A selection has a text form for Redis: `A:0,5;GA1*3` is seats 0 and 5 of A and three tickets of GA1.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.problems import UnknownSeat, UnknownSection
from shared.contracts.event_parts.seat_labels import SeatLabels, stored_labels
from shared.errors.problems import Unavailable, UnknownEvent
from shared.rules.shares import within

ROW_END = "|"
TYPE_NAMES = {"seated": "Reserved seating", "ga": "General Admission"}
SeatPosition = tuple[str, int]  # section_id, position

# -- a selection -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StockSelection:
    """Places without prices: seats in the order of their key, and GA places by section."""

    seats: tuple[SeatPosition, ...] = ()
    ga: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, selection: str) -> "StockSelection":
        """From the text form."""
        seats: list[SeatPosition] = []
        ga = Counter[str]()
        for part in selection.split(";"):
            section_id, is_seats, positions = part.partition(":")
            if is_seats:
                seats += [(section_id, int(position)) for position in positions.split(",")]
            else:
                section_id, _, quantity = part.partition("*")
                ga[section_id] += int(quantity)
        return cls(tuple(sorted(seats)), dict(ga))

    def text(self) -> str:
        """The text form."""
        by_section: dict[str, list[str]] = {}
        for section_id, position in self.seats:
            by_section.setdefault(section_id, []).append(str(position))
        parts = [f"{section_id}:{','.join(positions)}" for section_id, positions in by_section.items()]
        return ";".join([*parts, *(f"{section_id}*{quantity}" for section_id, quantity in self.ga.items())])

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(self.ga.values())

    def counts(self) -> dict[str, int]:
        """Places by section."""
        counts = Counter(self.ga)
        counts.update(section_id for section_id, _ in self.seats)
        return dict(counts)


class SeatLine(NamedTuple):
    """A seat and its price."""

    section_id: str
    position: int
    seat_id: str
    unit_price_minor: int


class GaLine(NamedTuple):
    """GA tickets of one section, and the price of each."""

    section_id: str
    quantity: int
    unit_price_minor: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Seats and GA tickets with their prices, each in the order of their key; at most one line per GA section."""

    seats: tuple[SeatLine, ...] = ()
    ga: tuple[GaLine, ...] = ()

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(line.quantity for line in self.ga)

    @property
    def total_minor(self) -> int:
        seats = sum(line.unit_price_minor for line in self.seats)
        return seats + sum(line.quantity * line.unit_price_minor for line in self.ga)

    @property
    def stock(self) -> StockSelection:
        """The same without prices."""
        seats = tuple((line.section_id, line.position) for line in self.seats)
        return StockSelection(seats, {line.section_id: line.quantity for line in self.ga})

    def text(self) -> str:
        """The text form."""
        return self.stock.text()

    def shown(self) -> dict[str, Any]:
        """As events and answers show it: the ids of its seats, and GA tickets by section."""
        ga = [{"section_id": line.section_id, "quantity": line.quantity} for line in self.ga]
        return {"seats": [line.seat_id for line in self.seats], "ga": ga}

    def columns(self) -> dict[str, list[Any]]:
        """As parallel arrays for a statement."""
        ga_section_ids, quantities = [line.section_id for line in self.ga], [line.quantity for line in self.ga]
        return {**seat_columns(self.seats), "ga_section_ids": ga_section_ids, "quantities": quantities}


def seat_columns(seats: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Seats as parallel arrays for a statement: `section_ids` and `positions`."""
    pairs = [(seat[0], seat[1]) for seat in seats]
    return {"section_ids": [section_id for section_id, _ in pairs], "positions": [position for _, position in pairs]}


def content_hash(*parts: str) -> str:
    """A hash of texts, 96 bits as hex."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


# -- a layout ----------------------------------------------------------------------------------------------------------


class PriceTier(NamedTuple):
    """Rows of a section, first and last, with a price of their own (fee included)."""

    name: str
    first: int
    last: int
    price_minor: int


class Variant(NamedTuple):
    """How long a holder's holds last, and the name of the experiment's variant (a or b), if there is an experiment."""

    hold_ttl_s: int
    name: str | None = None


class PriceBlock(NamedTuple):
    """Places of one price: positions `first` to `last` of the section's map, whose rows begin `width`
    apart; 0 for GA.
    """

    section_id: str
    price_minor: int
    first: int = 0
    last: int = 0
    width: int = 0


@dataclass(frozen=True)
class Section:
    """A section of the venue. `price_minor` includes the fee; `price_tiers` have other prices."""

    section_id: str
    name: str
    kind: str
    rows: int
    seats_per_row: int
    capacity: int
    price_minor: int
    labels: SeatLabels
    price_tiers: tuple[PriceTier, ...] = ()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Section":
        """From a row of `inventory.section`."""
        return cls(
            **{name: row[name] for name in ("section_id", "name", "kind", "rows", "seats_per_row", "capacity")},
            price_minor=row["price_minor"] + row["fee_minor"],
            price_tiers=tuple(_price_tier(level) for level in row["price_levels"]),
            labels=stored_labels(row["rows"], row["seats_per_row"], row["labels"]),
        )  # fmt: skip

    @property
    def type(self) -> str:
        return TYPE_NAMES[self.kind]

    @property
    def price_from_minor(self) -> int:
        return min(block.price_minor for block in self.price_blocks)

    def price_of(self, position: int) -> int:
        """The price of the seat at this position."""
        row = position // (self.seats_per_row + 1) + 1
        return next(
            (level.price_minor for level in self.price_tiers if level.first <= row <= level.last), self.price_minor
        )

    @cached_property
    def price_blocks(self) -> tuple[PriceBlock, ...]:
        """Neighbouring rows of one price, from the front; a GA section is one block."""
        if self.kind == "ga":
            return (PriceBlock(self.section_id, self.price_minor),)
        width, price_blocks = self.seats_per_row + 1, list[PriceBlock]()
        for row in range(self.rows):
            price_minor, last = self.price_of(row * width), (row + 1) * width - 2
            if price_blocks and price_blocks[-1].price_minor == price_minor:
                price_blocks[-1] = price_blocks[-1]._replace(last=last)
            else:
                price_blocks.append(PriceBlock(self.section_id, price_minor, row * width, last, width))
        return tuple(price_blocks)

    def position(self, row: str, seat: str) -> int:
        """The position in the map of the seat with these labels; raises `UnknownSeat`."""
        found = self.labels.find(row, seat)
        if found is None:
            raise UnknownSeat(f"There is no seat {self.section_id}-{row}-{seat}.")
        row_number, number = found
        return row_number * (self.seats_per_row + 1) + number

    def row_number(self, row: int | str) -> int:
        """Which row has this label, counted from 0; raises `UnknownSeat`."""
        found = self.labels.row_number(row)
        if found is None:
            raise UnknownSeat(f"There is no row {row} in section {self.section_id}.")
        return found

    def positions(self, *, page: int, page_size: int) -> list[int]:
        """The positions of one page of seats, front row first; a GA section has none."""
        total = self.capacity if self.kind == "seated" else 0
        ordinals = range(min((page - 1) * page_size, total), min(page * page_size, total))
        return [n + n // self.seats_per_row for n in ordinals]

    def labels_of(self, position: int) -> tuple[str, str]:
        """What stands on the row and on the chair of the seat at this position."""
        return self.labels.seat(*divmod(position, self.seats_per_row + 1))

    def seat_id(self, position: int) -> str:
        return "-".join((self.section_id, *self.labels_of(position)))


class Shown(Protocol):
    """What a feature shows of one event."""

    def card(self, layout: "Layout") -> Mapping[str, Any]:
        """Fields of the event's card in lists (`EventCard`), made often."""

    def details(self, layout: "Layout") -> Mapping[str, Any]:
        """More fields of its details (`EventDetails`)."""


Part = TypeVar("Part")


@dataclass(frozen=True)
class Layout:
    """One event: sections, prices and sales rules, and what features show of it."""

    event_id: str
    name: str
    venue: str
    currency: str
    starts_at: datetime
    ends_at: datetime | None
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
    rehearsal: bool
    sections: dict[str, Section]
    shown: tuple[Shown, ...]

    @classmethod
    def from_rows(
        cls, event: Mapping[str, Any], sections: Iterable[Mapping[str, Any]], shown: tuple[Shown, ...] = ()
    ) -> "Layout":
        """From a row of `inventory.event`, the rows of its sections in their order, and what features show of it."""
        by_id = {row["section_id"]: Section.from_row(row) for row in sections}
        own = {each.name: event[each.name] for each in fields(cls) if each.name in event}
        return cls(**own, sections=by_id, shown=shown)

    def part(self, kind: type[Part]) -> Part:
        """What a feature shows of it, by its class."""
        return next(each for each in self.shown if isinstance(each, kind))

    @property
    def seated(self) -> list[str]:
        """The ids of the sections that have a map."""
        return [section_id for section_id, section in self.sections.items() if section.kind == "seated"]

    def section(self, section_id: str, kind: str | None = None) -> Section:
        """Raises `UnknownSection`, also for one of another kind."""
        found = self.sections.get(section_id)
        if found is None or (kind and found.kind != kind):
            raise UnknownSection(f"There is no section {section_id}{' of that kind' if found else ''}.")
        return found

    def variant_for(self, holder: str) -> Variant:
        """The same for a holder every time, and independent of the waiting room's rollout percentages."""
        if self.hold_ttl_b_s is None or not self.hold_ttl_b_percent:
            return Variant(self.hold_ttl_s)
        in_b = within("hold_ttl", self.event_id, holder, self.hold_ttl_b_percent)
        return Variant(self.hold_ttl_b_s, "b") if in_b else Variant(self.hold_ttl_s, "a")

    def select(self, seat_ids: list[str], ga: dict[str, int]) -> Selection:
        """Seats and GA tickets at their current prices; raises `UnknownSeat` or `UnknownSection`."""
        seats = []
        for seat_id in set(seat_ids):
            section_id, row, seat = seat_id.split("-")
            section = self.section(section_id, "seated")
            position = section.position(row, seat)
            seats.append(SeatLine(section_id, position, seat_id, section.price_of(position)))
        return self._priced(seats, ga)

    def from_selection(self, selection: str) -> Selection:
        """A selection that Redis made, from its text."""
        places = StockSelection.parse(selection)
        seats = [SeatLine(s, p, self.sections[s].seat_id(p), self.sections[s].price_of(p)) for s, p in places.seats]
        return self._priced(seats, places.ga)

    def price_blocks(self, *, section_id: str | None, max_price_minor: int | None) -> list[PriceBlock]:
        """The blocks that best available searches, highest price first, then in the order of the event file. Raises
        `UnknownSection`.
        """
        price_blocks = _by_price([self.section(section_id)]) if section_id else self._price_blocks
        return [block for block in price_blocks if max_price_minor is None or block.price_minor <= max_price_minor]

    @cached_property
    def _price_blocks(self) -> list[PriceBlock]:
        return _by_price(self.sections.values())

    def _priced(self, seats: list[SeatLine], ga: Mapping[str, int]) -> Selection:
        tickets = [GaLine(s, quantity, self.section(s, "ga").price_minor) for s, quantity in ga.items()]
        return Selection(tuple(sorted(seats)), tuple(sorted(tickets)))


def _by_price(sections: Iterable[Section]) -> list[PriceBlock]:
    return sorted(
        (block for section in sections for block in section.price_blocks), key=lambda block: -block.price_minor
    )


def _price_tier(level: dict[str, Any]) -> PriceTier:
    first, last = level["rows"]
    return PriceTier(level["name"], first, last, level["price_minor"] + level["fee_minor"])


# -- the layouts of all events -----------------------------------------------------------------------------------------


# What a feature shows of the events of these rows of `inventory.event`, by id.
ReadShown = Callable[[AsyncConnection, Sequence[RowMapping]], Awaitable[Mapping[str, Shown]]]


class EventCache:
    """Every event's layout in this process; `readers` read what features show of it.

    Holds need prices and limits at once, so they never wait for PostgreSQL: `refresh` is called several times a second
    and reads again only the events whose version or Redis epoch changed.
    """

    def __init__(self, db: AsyncEngine) -> None:
        self.readers: list[ReadShown] = []
        self._db = db
        self._layouts: dict[str, Layout] = {}
        self._loaded = False

    def layout(self, event_id: str) -> Layout:
        """Raises `UnknownEvent`, or `Unavailable` while nothing has been read yet."""
        layout = self._layouts.get(event_id)
        if layout is None:
            raise UnknownEvent() if self._loaded else Unavailable()
        return layout

    def limits_customers(self, event_id: str) -> bool:
        """Whether the event has a limit that counts a customer's tickets or orders over all their holders, as far as is
        known here.
        """
        e = self._layouts.get(event_id)
        return e is None or any((e.tickets_per_customer, e.open_orders_per_customer, e.tour_tickets_per_customer))

    def layouts(self) -> list[Layout]:
        return list(self._layouts.values())

    async def check(self) -> None:
        if not self._loaded:
            raise Unavailable("The events have not been read yet. Try again shortly.")

    async def refresh(self) -> None:
        """Reads the events whose version or Redis epoch changed."""
        known = select(tables.event.c.event_id, tables.event.c.version, tables.event.c.redis_epoch)
        async with self._db.connect() as connection:
            current = {row.event_id: (row.version, row.redis_epoch) for row in await connection.execute(known)}
            cached = {layout.event_id: (layout.version, layout.redis_epoch) for layout in self._layouts.values()}
            changed = [event_id for event_id, at in current.items() if at != cached.get(event_id)]
            if changed:
                of_changed = tables.event.c.event_id.in_(changed)
                events = (await connection.execute(select(tables.event).where(of_changed))).mappings().all()
                query = select(tables.section).where(tables.section.c.event_id.in_(changed))
                rows = (await connection.execute(query.order_by(tables.section.c.ordinal))).mappings().all()
                shown = [await read(connection, events) for read in self.readers]
                for event in events:
                    event_id = event["event_id"]
                    own = [dict(row) for row in rows if row["event_id"] == event_id]
                    self._layouts[event_id] = Layout.from_rows(
                        dict(event), own, tuple(each[event_id] for each in shown)
                    )
        for removed in self._layouts.keys() - current.keys():
            del self._layouts[removed]
        self._loaded = True
