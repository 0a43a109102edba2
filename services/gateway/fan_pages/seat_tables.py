"""The seats of a section as a table of checkboxes, some rows a page; the same for all fans for a second."""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import NamedTuple

from services.gateway.fan_pages.stock import EventStock
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import ReadSeats, SeatPage, SeatView
from shared.contracts.inventory import InventoryClient
from shared.words.words import Words

SEATS_MAX, READS_MAX, PAGES_MAX = 300, 16, 1_000
KEPT_S = 1.0


class SeatTableRow(NamedTuple):
    """A row with its price and its seats, from one end to the other."""

    row: str
    price: str
    seats: list[SeatView]


class SeatPlan(NamedTuple):
    """One page of a section's rows."""

    section_id: str
    name: str
    page: int
    pages: int
    rows: list[SeatTableRow]


class SeatTables:
    """Reads seats from inventory, each page at most once a second."""

    def __init__(self, inventory: InventoryClient) -> None:
        self._inventory = inventory
        self._pages: CachedReads[SeatPage] = CachedReads(kept_s=KEPT_S, keys_max=PAGES_MAX, in_flight_max=READS_MAX)

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
            partial(self._inventory.section_seats, question),
        )
        rows = list(_rows(text, stock, found.seats))
        return SeatPlan(section.section_id, section.name, question.page, pages, rows)

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._pages.close()


def _rows(text: Words, stock: EventStock, seats: Iterable[SeatView]) -> Iterable[SeatTableRow]:
    for row, of_row in groupby(seats, key=lambda seat: seat.row):
        listed = list(of_row)
        yield SeatTableRow(row, stock.price(text, listed[0].price_minor), listed)
