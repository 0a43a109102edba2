"""A selection: seats and GA tickets of one event, priced by its layout, and its text form for Redis.

`A:0,5;GA1*3` is seats 0 and 5 of A and three tickets of GA1. A position is the seat's offset in the section's map,
whose rows are separated by one character.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Seats as (section_id, position, seat_id, price), GA as (section_id, quantity, price), both sorted."""

    seats: tuple[tuple[str, int, str, int], ...]
    ga: tuple[tuple[str, int, int], ...]
    quantity: int
    total_minor: int

    def text(self) -> str:
        """The text form."""
        return selection_text(
            ((section, position) for section, position, _, _ in self.seats),
            ((section, quantity) for section, quantity, _ in self.ga),
        )


def selection_text(seats: Iterable[tuple[str, int]], ga: Iterable[tuple[str, int]]) -> str:
    """The text form of (section_id, position) and (section_id, quantity)."""
    by_section: dict[str, list[str]] = {}
    for section_id, position in seats:
        by_section.setdefault(section_id, []).append(str(position))
    parts = [f"{section_id}:{','.join(positions)}" for section_id, positions in by_section.items()]
    return ";".join([*parts, *(f"{section_id}*{quantity}" for section_id, quantity in ga)])


def parse_selection(selection: str) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Seats as (section_id, position), and GA tickets by section."""
    seats: list[tuple[str, int]] = []
    ga: dict[str, int] = {}
    for part in selection.split(";"):
        section_id, is_seats, positions = part.partition(":")
        if is_seats:
            seats += [(section_id, int(position)) for position in positions.split(",")]
        else:
            section_id, _, quantity = part.partition("*")
            ga[section_id] = ga.get(section_id, 0) + int(quantity)
    return seats, ga


def content_hash(*parts: str) -> str:
    """A hash of texts, 96 bits as hex."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
