"""An event's layout: sections, prices, sales rules, and the position of each seat in its section's map.

A section's map is a string of rows, each seat one character, the rows joined by `ROW_END`; a position is an offset in
it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.layout.exclusive import ExclusivePlaces
from services.inventory.layout.offers import EVERYTHING, HasExclusive, Offers, Round
from services.inventory.layout.price_types import Fan, PriceTypes, WantedTicket
from services.inventory.layout.selection import (
    POOL,
    GaKey,
    GaLine,
    SeatLine,
    SeatPosition,
    Selection,
    StockSelection,
    apart,
    section_of,
)
from services.inventory.problems import UnknownSeat, UnknownSection
from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.event_parts.price_types import QUOTA, USUAL, PriceType, Trait, quota_id
from shared.contracts.event_parts.seat_labels import SeatLabels, stored_labels
from shared.contracts.event_parts.traits import Run, has
from shared.contracts.fields import SingleSeatRule
from shared.errors.problems import Unavailable, UnknownEvent
from shared.rules.shares import within
from shared.runtime.clock import from_datetime, now_ms

ROW_END = "|"
TYPE_NAMES = {"seated": "Reserved seating", "ga": "General Admission"}
NO_TRAITS: frozenset[Trait] = frozenset()


# -- a layout ----------------------------------------------------------------------------------------------------------


class PriceTier(NamedTuple):
    """Rows of a section, first and last, with a price of their own (fee included), and with `prices` that they say of
    price types (without a fee).
    """

    name: str
    first: int
    last: int
    price_minor: int
    fee_minor: int = 0
    prices: Mapping[str, int] = MappingProxyType({})


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

    @property
    def for_script(self) -> tuple[str | int, ...]:
        """As `lua/best_available.lua` has it."""
        return (self.section_id, self.first, self.last, self.width) if self.width else (self.section_id,)


@dataclass(frozen=True)
class Section:
    """A section of the venue. `price_minor` includes the fee; `price_tiers` have other prices. `prices` are what it
    says of price types (without a fee), `traits` by trait the runs of its seats; of a GA section all places have them.
    """

    section_id: str
    name: str
    kind: str
    rows: int
    seats_per_row: int
    capacity: int
    price_minor: int
    labels: SeatLabels
    price_tiers: tuple[PriceTier, ...] = ()
    fee_minor: int = 0
    prices: Mapping[str, int] = field(default_factory=dict)
    traits: Mapping[Trait, Sequence[Run]] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Section":
        """From a row of `inventory.section`."""
        return cls(
            **{name: row[name] for name in ("section_id", "name", "kind", "rows", "seats_per_row", "capacity")},
            price_minor=row["price_minor"] + row["fee_minor"], fee_minor=row["fee_minor"], prices=row["prices"],
            traits={trait: tuple(map(tuple, runs)) for trait, runs in row["traits"].items()},
            price_tiers=tuple(_price_tier(level) for level in row["price_levels"]),
            labels=stored_labels(row["rows"], row["seats_per_row"], row["labels"]),
        )  # fmt: skip

    @property
    def type(self) -> str:
        return TYPE_NAMES[self.kind]

    @property
    def last(self) -> int:
        """The last position of its map; 0 for GA."""
        return max(0, self.rows * (self.seats_per_row + 1) - 2)

    @property
    def price_from_minor(self) -> int:
        return min(block.price_minor for block in self.price_blocks)

    def price_of(self, position: int) -> int:
        """The price of the seat at this position."""
        return self.priced_as(position).price_minor

    def priced_as(self, position: int) -> "PriceTier | Section":
        """The price level of the seat at this position, else the section."""
        row = position // (self.seats_per_row + 1) + 1
        return next((tier for tier in self.price_tiers if tier.first <= row <= tier.last), self)

    def traits_of(self, position: int) -> frozenset[Trait]:
        """The traits of the place at this position; every place of a GA section has all of them."""
        if not self.traits:
            return NO_TRAITS
        if self.kind == "ga":
            return frozenset(self.traits)
        return frozenset(trait for trait in self.traits if has(self.traits, trait, position))

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

    def block_of(self, position: int) -> PriceBlock:
        """The price block of the seat at this position."""
        return next(block for block in self.price_blocks if block.first <= position <= block.last)

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
    """One event: sections, prices and sales rules, and what features show of it. `pools` are those of its sections that
    have some. `quotas` are the numbers in all of its price types, by the `quota_id` under which the stock counts them.
    """

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
    accessible_release_at: datetime | None
    accessible_released_at: datetime | None
    single_seats: SingleSeatRule
    hold_ttl_b_s: int | None
    hold_ttl_b_percent: float
    oversell: dict[str, Any]
    redis_epoch: int
    version: int
    min_pass_epoch: int
    rehearsal: bool
    names: NamesWanted
    names_until: datetime | None
    types: PriceTypes
    sections: dict[str, Section]
    pools: Mapping[str, Sequence[str]]
    quotas: Mapping[str, int]
    shown: tuple[Shown, ...]

    @classmethod
    def from_rows(
        cls, event: Mapping[str, Any], sections: Iterable[Mapping[str, Any]], shown: tuple[Shown, ...] = ()
    ) -> "Layout":
        """From a row of `inventory.event`, the rows of its sections in their order, and what features show of it."""
        rows = list(sections)
        own_rows, pools = apart(rows)
        by_id = {row["section_id"]: Section.from_row(row) for row in own_rows}
        quotas = {row["section_id"]: row["capacity"] for row in rows if row["kind"] == "type"}
        own = {each.name: event[each.name] for each in fields(cls) if each.name in event}
        return cls(**own, types=PriceTypes.stored(event["price_types"]), sections=by_id, pools=pools, quotas=quotas,
                   shown=shown)  # fmt: skip

    def part(self, kind: type[Part]) -> Part:
        """What a feature shows of it, by its class."""
        return next(each for each in self.shown if isinstance(each, kind))

    @property
    def usual_type_id(self) -> str | None:
        """What answers call the usual price type; None where the event has no types."""
        return self.types.types[0].type_id if self.types.types else None

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

    def select(
        self, seat_ids: Iterable[str], ga: Mapping[GaKey, int], types: Mapping[str, str] = MappingProxyType({})
    ) -> Selection:
        """Seats, each of its price type or the usual one, and GA tickets at their current prices; raises `UnknownSeat`
        or `UnknownSection`.
        """
        seats = []
        for seat_id in set(seat_ids):
            section_id, row, seat = seat_id.split("-")
            section, type_id = self.section(section_id, "seated"), types.get(seat_id, USUAL)
            position = section.position(row, seat)
            seats.append(SeatLine(section_id, position, seat_id, self._price(section, position, type_id), type_id))
        tickets = [
            GaLine(s, quantity, self._price(self.section(s.partition(POOL)[0], "ga"), 0, type_id), type_id)
            for (s, type_id), quantity in ga.items()
        ]
        return Selection(tuple(sorted(seats)), tuple(sorted(tickets, key=lambda line: line.key)))

    def from_selection(self, selection: str) -> Selection:
        """A selection that Redis made, from its text. Which of its places are of which price type, the types say."""
        places, ga = StockSelection.parse(selection), Counter[GaKey]()
        of_ga = [s for s, n in places.ga.items() if s[0] != QUOTA for _ in range(n)]
        traits = [self.sections[s].traits_of(at) for s, at in (*places.seats, *((section_of(s), 0) for s in of_ga))]
        numbers = {type_id: places.ga.get(quota_id(type_id), 0) for type_id in self.types.by_id}
        types, ids = self.types.assigned(numbers, traits), self.seat_ids(places.seats)
        ga.update(zip(of_ga, types[len(ids) :], strict=True))
        return self.select(ids, ga, dict(zip(ids, types, strict=False)))

    def seat_ids(self, places: Iterable[SeatPosition]) -> list[str]:
        return [self.sections[section_id].seat_id(position) for section_id, position in places]

    def single_seats_criteria(self, selection: Selection, fan: Fan) -> dict[str, Any]:
        """What `lua/single_seats.lua` needs to look at a choice of seats; nothing if the event allows single seats.
        Better places are those that are offered to this fan first.
        """
        if self.single_seats == "allow" or not selection.seats:
            return {}
        blocks = dict.fromkeys(self.sections[line.section_id].block_of(line.position) for line in selection.seats)
        places, (first, *_) = [block.for_script for block in blocks], self.rounds(fan, None)
        return {"single_seats": {"blocks": places, "avoid": first, "refuse": self.single_seats == "refuse"}}

    def tickets(self, selection: Selection) -> list[WantedTicket]:
        """As the rules of price types see them."""
        seats = [
            WantedTicket(
                line.type_id, line.section_id, self.sections[line.section_id].traits_of(line.position), line.seat_id
            )
            for line in selection.seats
        ]
        ga = [
            WantedTicket(line.type_id, s, self.sections[s].traits_of(0), s, line.quantity)
            for line in selection.ga
            if (s := line.named[0]) in self.sections
        ]
        return seats + ga

    def require(self, selection: Selection, fan: Fan) -> None:
        """Raises what says why this fan may not have these tickets at these prices."""
        if self.offers.exclusive:
            self.exclusive.require(selection.seats, fan)
        self.require_types(selection, fan)

    def require_types(self, selection: Selection, fan: Fan) -> None:
        """Raises what says why this fan may not have tickets, whose places they have, at these prices."""
        if self.types.types:
            self.types.require(self.tickets(selection), fan)

    def type_prices(self, place: "Section | PriceTier", section: Section, traits: Iterable[Trait]) -> dict[str, int]:
        """What the price types besides the usual one cost at places of a section that have these traits, if they are
        sold there.
        """
        sold = self.types.sold_in(section.section_id, traits) if self.types.types else ()
        return {each.type_id: self._type_price(place, each) for each in sold}

    def prices_at(self, line: SeatLine | GaLine) -> dict[str, int]:
        """What each price type that is sold at the place of these tickets costs there; empty without price types."""
        usual = self.usual_type_id
        if usual is None:
            return {}
        section = self.sections[section_of(line.section_id)]
        position = line.position if isinstance(line, SeatLine) else 0
        place = section.priced_as(position)
        return {usual: place.price_minor, **self.type_prices(place, section, section.traits_of(position))}

    def _price(self, section: Section, position: int, type_id: str) -> int:
        place = section.priced_as(position) if section.price_tiers else section
        return self._type_price(place, self.types.by_id[type_id]) if type_id else place.price_minor

    def _type_price(self, place: "Section | PriceTier", kind: PriceType) -> int:
        return kind.all_in_minor(place.price_minor - place.fee_minor, place.fee_minor, self.currency, place.prices)

    def rounds(self, fan: Fan, section_id: str | None = None) -> Sequence[Round]:
        """What each round of best available leaves out for this fan, of one section or of all."""
        if self._is_offered_as_one:
            return EVERYTHING
        rounds = self.offers.rounds(fan, released=self.accessible_are_released)
        if section_id is None:
            return rounds
        return [{section_id: each[section_id]} if section_id in each else {} for each in rounds]

    @property
    def accessible_are_released(self) -> bool:
        """Whether wheelchair and companion places are offered to everybody."""
        at = self.accessible_release_at
        return self.accessible_released_at is not None or (at is not None and now_ms() >= from_datetime(at))

    @cached_property
    def _is_offered_as_one(self) -> bool:
        return not self.offers.exclusive and not any(section.traits for section in self.sections.values())

    @cached_property
    def offers(self) -> Offers:
        exclusive = [each for part in self.shown if isinstance(part, HasExclusive) for each in part.exclusive]
        traits = {section_id: section.traits for section_id, section in self.sections.items()}
        return Offers(traits, exclusive, {section_id: each.last for section_id, each in self.sections.items()})

    @cached_property
    def exclusive(self) -> ExclusivePlaces:
        """The places that only some fans may buy."""
        return ExclusivePlaces(self.offers.exclusive)

    @cached_property
    def asks_for_codes(self) -> bool:
        """Whether a code may open anything."""
        return bool(self.exclusive) or any(each.codes for each in self.types.types)


def _price_tier(level: dict[str, Any]) -> PriceTier:
    first, last = level["rows"]
    fee_minor = level["fee_minor"]
    price_minor, prices = level["price_minor"] + fee_minor, level.get("prices", {})
    return PriceTier(level["name"], first, last, price_minor, fee_minor=fee_minor, prices=prices)


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
