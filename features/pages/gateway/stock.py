"""An event's sections with their prices and what is left of them, in words (`web/fans/sections.js`); and the seats of a
section as a table of checkboxes, some rows a page, the same for all fans for a second.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple, get_args

from features.pages.contracts import ReadSeats, ShopClient
from features.pages.gateway.event_page import KEPT_S, EventFacts
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import (
    EventDetails,
    SeatPage,
    SeatView,
    SectionAvailability,
    SectionDetails,
    SectionList,
)
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.prices import PricesAnswer
from shared.words.words import Words

FEW_SHARE = 0.1


class SectionRow(NamedTuple):
    """A section as the page shows it; `available` is None while that is unknown. `reserved` places are for a code or a
    lane, which this fan may have.
    """

    section_id: str
    name: str
    kind: str
    price: str
    left: str
    available: int | None
    reserved: int
    few: bool
    traits: str
    details: SectionDetails


@dataclass(frozen=True, slots=True)
class EventStock:
    """What an event sells, what is left and what one ticket costs with everything in it, once that is known."""

    event: EventDetails
    availability: SectionList
    all_in: PricesAnswer | None = None

    @classmethod
    def of(cls, facts: EventFacts) -> "EventStock | None":
        """None while inventory does not answer."""
        if facts.event is None or facts.availability is None:
            return None
        return cls(facts.event, facts.availability, facts.prices)

    def price(self, text: Words, minor: int) -> str:
        """One ticket of this price; without fees, and saying so, while they are unknown."""
        whole = self.all_in.all_in.get(minor) if self.all_in else None
        if whole is not None:
            return text.money(whole, self.event.currency)
        return text("price_plus_fees", price=text.money(minor, self.event.currency))

    def least(self, text: Words) -> str:
        """The lowest price of a ticket; empty without sections."""
        minors = [section.price_minor for section in self.event.sections]
        return text("price_from", price=self.price(text, min(minors))) if minors else ""

    def left_now(self, text: Words) -> str:
        """What is left for those who wait, at which prices: nobody waits for what is gone."""
        free = {one.section_id for one in self.availability.sections if one.available_seats > 0}
        sections = [section for section in self.event.sections if section.section_id in free]
        levels = [section.price_minor for section in sections]
        levels += [level.price_minor for section in sections for level in section.price_levels]
        everything = self.availability.sections
        left = text(
            "left_of",
            n=sum(one.available_seats for one in everything),
            total=sum(one.total_seats for one in everything),
        )
        if not levels:
            return left
        least, most = (self.price(text, minor) for minor in (min(levels), max(levels)))
        return f"{left} · {least if least == most else text('price_range', least=least, most=most)}"

    @property
    def is_by_code(self) -> bool:
        """Whether some places are sold to fans with a code or of a lane alone."""
        return self.event.code_opens_places or self.event.lane_opens_places

    @property
    def is_accessible(self) -> bool:
        """Whether there are places for wheelchair users."""
        return any("wheelchair" in section.traits for section in self.event.sections)

    def rows(self, text: Words) -> list[SectionRow]:
        found = {one.section_id: one for one in self.availability.sections}
        return [self._row(text, section, found.get(section.section_id)) for section in self.event.sections]

    def _row(self, text: Words, section: SectionDetails, left: SectionAvailability | None) -> SectionRow:
        price = self.price(text, section.price_minor)
        available = left.available_seats if left else None
        return SectionRow(
            section_id=section.section_id, name=section.name, kind=section.kind,
            price=text("price_from", price=price) if section.price_levels else price,
            left=_left(text, left) if left else "", available=available,
            reserved=left.reserved_seats if left and self.is_by_code else 0,
            few=bool(left and 0 < left.available_seats < FEW_SHARE * left.total_seats),
            traits=traits_in_words(text, section.traits, "traits"), details=section,
        )  # fmt: skip


def traits_in_words(text: Words, traits: Iterable[Trait], form: Literal["trait", "traits"]) -> str:
    """What a place is besides its price, or what places of a section are."""
    return text("list_comma").join(text(f"{form}_{trait}") for trait in get_args(Trait) if trait in set(traits))


def _left(text: Words, section: SectionAvailability) -> str:
    if section.available_seats > 0:
        return text("left_of", n=section.available_seats, total=section.total_seats)
    if section.reserved_seats > 0:
        return text("all_reserved", n=section.reserved_seats)
    return text("all_held", n=section.held_seats) if section.held_seats > 0 else text("state_sold_out")


# -- tables of seats ---------------------------------------------------------------------------------------------------

SEATS_MAX, SEAT_READS_MAX, SEAT_PAGES_MAX = 300, 16, 1_000


class SeatTableRow(NamedTuple):
    """A row with its price, the traits of all its seats, and these from one end to the other, each with its own."""

    row: str
    price: str
    traits: str
    seats: list[tuple[SeatView, str]]


class SeatPlan(NamedTuple):
    """One page of a section's rows."""

    section_id: str
    name: str
    page: int
    pages: int
    rows: list[SeatTableRow]


class SeatTables:
    """Reads seats from inventory, each page at most once a second."""

    def __init__(self, shop: ShopClient) -> None:
        self._shop = shop
        self._pages: CachedReads[SeatPage] = CachedReads(
            kept_s=KEPT_S, keys_max=SEAT_PAGES_MAX, in_flight_max=SEAT_READS_MAX
        )

    async def plan(self, text: Words, stock: EventStock, query: Mapping[str, str]) -> SeatPlan | None:
        """The page of the seated section that the query names; None if it names none."""
        seated = {one.section_id: one for one in stock.event.sections if one.kind == "seated"}
        section = seated.get(query.get("section", ""))
        if section is None or not section.seats_per_row:
            return None
        size = section.seats_per_row * max(1, SEATS_MAX // section.seats_per_row)
        pages, number = -(-section.capacity // size), query.get("page", "")
        page = min(int(number), pages) if number.isascii() and number.isdecimal() and 0 < len(number) < 5 else 1
        question = ReadSeats(
            event_id=stock.event.event_id, section_id=section.section_id, page=max(1, page), page_size=min(size, 500)
        )
        found = await self._pages.get(
            f"{question.event_id} {question.section_id} {question.page}",
            partial(self._shop.section_seats, question),
        )
        rows = list(_rows(text, stock, found.seats))
        return SeatPlan(section.section_id, section.name, question.page, pages, rows)

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._pages.close()


def _rows(text: Words, stock: EventStock, seats: Iterable[SeatView]) -> Iterable[SeatTableRow]:
    for row, of_row in groupby(seats, key=lambda seat: seat.row):
        listed = list(of_row)
        common = set.intersection(*(set(seat.traits) for seat in listed))
        each = [(seat, traits_in_words(text, set(seat.traits) - common, "trait")) for seat in listed]
        price = stock.price(text, listed[0].price_minor)
        yield SeatTableRow(row, price, traits_in_words(text, common, "trait"), each)
