"""A selection of places at their prices: of one request, of a hold, of what was bought.

It has a text form for Redis: `A:0,5;GA1*3;~child*2` is seats 0 and 5 of A and three tickets of GA1, two of them all of
the price type child: how many there are of a type is counted like general admission, beside the places.

Pools are general-admission places of a section that only some fans may buy, which the stock counts as a section of
their own. Fans, orders and tickets know the section alone.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shared.contracts.event_parts.price_types import QUOTA, USUAL, quota_id

SeatPosition = tuple[str, int]  # section_id, position
GaKey = tuple[str, str]  # section_id, type_id
POOL = QUOTA  # what begins the id of a price type stands in that of a pool


@dataclass(frozen=True, slots=True)
class StockSelection:
    """Places without prices: seats in the order of their key, and GA places by section. Beside the places `ga` has the
    tickets of each price type but the usual one, by its `quota_id`.
    """

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
        """Tickets."""
        return len(self.seats) + sum(n for section_id, n in self.ga.items() if section_id[0] != QUOTA)

    def counts(self) -> dict[str, int]:
        """Places by section, and tickets by price type."""
        counts = Counter(self.ga)
        counts.update(section_id for section_id, _ in self.seats)
        return dict(counts)


class SeatLine(NamedTuple):
    """A seat, its price, and the price type."""

    section_id: str
    position: int
    seat_id: str
    unit_price_minor: int
    type_id: str = USUAL


class GaLine(NamedTuple):
    """GA tickets of one section (or one of its pools) and price type, and the price of each."""

    section_id: str
    quantity: int
    unit_price_minor: int
    type_id: str = USUAL

    @property
    def key(self) -> "GaKey":
        return self.section_id, self.type_id

    @property
    def named(self) -> "GaKey":
        """As fans and orders name them, who know no pools. All tickets that a reservation has of a section are counted
        together.
        """
        return section_of(self.section_id), self.type_id


@dataclass(frozen=True, slots=True)
class Selection:
    """Seats and GA tickets with their prices, each in the order of their key; at most one line per GA section and
    price type.
    """

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
        ga: dict[str, int] = {}
        for line in self.ga:
            ga[line.section_id] = ga.get(line.section_id, 0) + line.quantity
        for type_id, n in sorted(self.types.items()):
            ga[quota_id(type_id)] = n
        return StockSelection(seats, ga)

    @property
    def types(self) -> dict[str, int]:
        """Tickets of each price type but the usual one."""
        types: dict[str, int] = {}
        for seat in self.seats:
            if seat.type_id:
                types[seat.type_id] = types.get(seat.type_id, 0) + 1
        for line in self.ga:
            if line.type_id:
                types[line.type_id] = types.get(line.type_id, 0) + line.quantity
        return types

    def text(self) -> str:
        """The text form."""
        return self.stock.text()

    def shown(self) -> dict[str, Any]:
        """As events and answers show it: the ids of its seats, and GA tickets by section."""
        ga: dict[str, int] = {}
        for line in self.ga:
            section_id = line.section_id if POOL not in line.section_id else section_of(line.section_id)
            ga[section_id] = ga.get(section_id, 0) + line.quantity
        tickets = [{"section_id": section_id, "quantity": quantity} for section_id, quantity in ga.items()]
        return {"seats": [line.seat_id for line in self.seats], "ga": tickets}

    def counted_as(self, stock: StockSelection) -> "Selection":
        """The same, its tickets of each section in the pool from which this stock has them."""
        pools = {section_of(s): s for s in stock.ga}
        ga = (line._replace(section_id=pools.get(section_of(line.section_id), line.section_id)) for line in self.ga)
        return replace(self, ga=tuple(ga))

    def columns(self) -> dict[str, list[Any]]:
        """As parallel arrays for a statement."""
        types = self.types
        return {
            **seat_columns(self.seats),
            "ga_section_ids": [line.section_id for line in self.ga], "quantities": [line.quantity for line in self.ga],
            "ga_type_ids": [line.type_id for line in self.ga],
            "type_ids": list(types), "type_quantities": list(types.values()),
        }  # fmt: skip


def seat_columns(seats: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Seats as parallel arrays for a statement: `section_ids` and `positions`."""
    pairs = [(seat[0], seat[1]) for seat in seats]
    return {"section_ids": [section_id for section_id, _ in pairs], "positions": [position for _, position in pairs]}


def content_hash(*parts: str) -> str:
    """A hash of texts, 96 bits as hex."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


# -- pools -------------------------------------------------------------------------------------------------------------


def pool_id(section_id: str, name: str) -> str:
    """How the places of a section that have this name are counted."""
    return f"{section_id}{POOL}{name}"


def section_of(counted_as: str) -> str:
    """The section of places by what they are counted as: it, or one of its pools."""
    return counted_as.partition(POOL)[0]


def apart(rows: Iterable[Mapping[Any, Any]]) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """The rows of sections, each with the capacity of its pools, too; and the ids of the pools by section."""
    all_rows, capacity, pools = list(rows), dict[str, int](), dict[str, list[str]]()
    for row in all_rows:
        section_id = section_of(row["section_id"])
        capacity[section_id] = capacity.get(section_id, 0) + row["capacity"]
        if section_id and section_id != row["section_id"]:
            pools.setdefault(section_id, []).append(row["section_id"])
    sections = [{**row, "capacity": capacity[s]} for row in all_rows if (s := row["section_id"]) == section_of(s)]
    return sections, pools
