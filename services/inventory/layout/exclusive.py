"""Places that only some fans may buy: which they are, whose, and the refusal for others."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from services.inventory.layout.offers import Exclusive, Places
from services.inventory.layout.price_types import Fan
from services.inventory.problems import ReservedSeats
from shared.contracts.event_parts.traits import joined

NO_LANE, SHOWN_MAX = -1, 20


class _Seat(Protocol):
    @property
    def section_id(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def seat_id(self) -> str: ...


class ExclusivePlaces:
    """All exclusive places of a layout."""

    def __init__(self, places: Sequence[Exclusive]) -> None:
        self._places = places

    def __bool__(self) -> bool:
        return bool(self._places)

    @cached_property
    def seats(self) -> Places:
        """Those that have numbers."""
        return {section_id: joined((a, b) for a, b, _ in own) for section_id, own in self._runs.items()}

    def allotments(self, seats: Iterable[_Seat]) -> tuple[str, ...]:
        """Whose each of these seats is, as PostgreSQL compares it: empty is everybody's."""
        found = (self._at(seat.section_id, seat.position) for seat in seats)
        return tuple(each.name if each else "" for each in found)

    def are_closed_to(self, fan: Fan, section_id: str, position: int) -> bool:
        """Whether only other fans may buy this seat."""
        found = self._at(section_id, position)
        return found is not None and not found.is_open_to(fan)

    def require(self, seats: Iterable[_Seat], fan: Fan) -> None:
        """Raises `ReservedSeats`, which names those of the seats that only others may buy."""
        closed = [seat.seat_id for seat in seats if self.are_closed_to(fan, seat.section_id, seat.position)]
        if closed:
            more = f" and {len(closed) - SHOWN_MAX} more" if len(closed) > SHOWN_MAX else ""
            named = ", ".join(closed[:SHOWN_MAX]) + more
            code = "This code does not open them" if fan.code else "They need a code"
            raise ReservedSeats(f"Reserved for other fans: {named}. {code}. Choose other seats.", seats=closed)

    def open_to(self, fan: Fan) -> list[Exclusive]:
        """Those that this fan may buy."""
        return [each for each in self._places if each.is_open_to(fan)]

    def pools(self, fan: Fan) -> dict[str, list[str]]:
        """The pools that this fan may buy from, by section."""
        found: dict[str, list[str]] = {}
        for each in self.open_to(fan):
            for section_id, pool in each.pools.items():
                found.setdefault(section_id, []).append(pool)
        return found

    def opens(self, code: str) -> bool:
        """Whether this code opens any of them."""
        return bool(self.open_to(Fan(NO_LANE, code)))

    def _at(self, section_id: str, position: int) -> Exclusive | None:
        runs = self._runs.get(section_id, ())
        at = bisect_right(runs, position, key=_first) - 1
        return runs[at][2] if at >= 0 and position <= runs[at][1] else None

    @cached_property
    def _runs(self) -> Mapping[str, Sequence[tuple[int, int, Exclusive]]]:
        """By section the first and the last position of each run, and whose it is."""
        found: dict[str, list[tuple[int, int, Exclusive]]] = {}
        for each in self._places:
            for section_id, own in each.places.items():
                found.setdefault(section_id, []).extend((first, last, each) for first, last in own)
        return {section_id: sorted(own, key=_first) for section_id, own in found.items()}


def _first(run: tuple[int, int, Exclusive]) -> int:
    return run[0]
