"""A selection: seats and GA tickets of one event, at the prices of its layout, and its text form for Redis.

`A:0,5;GA1*3` is seats 0 and 5 of A and three tickets of GA1. A position is the seat's offset in the section's map,
whose rows are separated by one character.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SeatPosition = tuple[str, int]  # section_id, position


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
