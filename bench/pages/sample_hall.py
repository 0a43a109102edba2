"""A hall of many seats as a page gets it: geometry, states, the details of its sections, and the pages of the list."""

import random
from types import SimpleNamespace
from typing import Any, cast

import orjson

from features.hall import seat_codes
from features.hall.hall_map import Block, hall_geometry
from services.inventory.api.catalogue import seat_page
from services.inventory.layout.layout import Layout, Section
from shared.contracts.catalogue import SeatPage
from shared.contracts.event_parts.seat_labels import stored_labels

ROWS, SEATS, SECTION_SEATS, SEED = 20, 25, 500, 7
MINORS = (12_000, 9_000, 7_000, 5_000)
SHARES = (0.5, 0.15, 0.35)  # of free, held and sold seats: every look is painted


class SampleHall:
    """Sections of 500 seats, laid out by themselves; each has one of four prices."""

    def __init__(self, seats: int) -> None:
        self.names = [f"S{n:03}" for n in range(seats // SECTION_SEATS)]
        self._sections = [
            Section(
                section_id=name,
                name=f"Section {name}",
                kind="seated",
                rows=ROWS,
                seats_per_row=SEATS,
                capacity=SECTION_SEATS,
                price_minor=MINORS[n % len(MINORS)],
                labels=stored_labels(ROWS, SEATS),
            )
            for n, name in enumerate(self.names)
        ]
        chosen = random.Random(SEED).choices((seat_codes.FREE, seat_codes.HELD, seat_codes.SOLD), SHARES, k=seats)
        self.codes = bytes(chosen)
        self._layout = cast("Layout", SimpleNamespace(type_prices=lambda *_: {}))  # it has no price types

    @property
    def geometry(self) -> dict[str, Any]:
        blocks = [Block(section.section_id, ROWS, SEATS, SECTION_SEATS) for section in self._sections]
        return hall_geometry(blocks, None).model_dump(mode="json")

    @property
    def details(self) -> list[dict[str, Any]]:
        """As `GET /events/{event_id}` answers them, with what is left."""
        return [
            {"section_id": s.section_id, "name": s.name, "kind": "seated", "price_minor": s.price_minor,
             "regular_price_minor": s.price_minor, "price_levels": [], "rows": ROWS, "total_seats": SECTION_SEATS,
             "available_seats": SECTION_SEATS // 2, "held_seats": 0}
            for s in self._sections
        ]  # fmt: skip

    @property
    def state(self) -> bytes:
        return seat_codes.encode_state(1, 1, self.codes)

    def page(self, n: int) -> SeatPage:
        """The page of all seats of a section."""
        section, first = self._sections[n], n * SECTION_SEATS
        positions = section.positions(page=1, page_size=SECTION_SEATS)
        words = {seat_codes.FREE: "available", seat_codes.HELD: "reserved", seat_codes.SOLD: "sold"}
        statuses = {position: words[self.codes[first + n]] for n, position in enumerate(positions)}
        return SeatPage.model_validate(
            seat_page(self._layout, section, positions, statuses, page=1, page_size=SECTION_SEATS)
        )

    @property
    def list_bytes(self) -> int:
        """All pages of the list."""
        return sum(len(self.page(n).model_dump_json()) for n in range(len(self.names)))

    @property
    def first_page(self) -> Any:
        return orjson.loads(self.page(0).model_dump_json())
