"""Traits of places: for a wheelchair, for who comes with one, with a restricted view, without steps.

An event file names the seats of a trait by their labels: `A-1` is a seat, `A-3..8` are the neighbours from 3 to 8 of a
row, `A` is the whole row. Stored are runs of positions in the section's map, each the first and the last.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from shared.contracts.event_parts.price_types import Trait
from shared.contracts.event_parts.seat_labels import SeatLabels
from shared.contracts.fields import LABEL

Run = tuple[int, int]  # the first and the last position
PLACES_MAX = 2_000
FORM = rf"{LABEL}(-{LABEL}(\.\.{LABEL})?)?"
_form = re.compile(FORM)


def _read(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _form.fullmatch(text):
        raise ValueError("write a row such as A, a seat such as A-1, or neighbours such as A-3..8")
    return text


SeatsOfTrait = Annotated[str, BeforeValidator(_read), WithJsonSchema({"type": "string", "pattern": f"^{FORM}$"})]
SeatTraits = Annotated[
    dict[Trait, Annotated[list[SeatsOfTrait], Field(min_length=1, max_length=PLACES_MAX)]], Field(max_length=4)
]


def runs_of(places: Iterable[str], labels: SeatLabels, width: int) -> list[Run]:
    """The runs of these places in a map whose rows begin `width` apart, in order and as few as possible. Raises
    `ValueError` for what the section has not.
    """
    runs = []
    for place in places:
        row_label, _, seats = place.partition("-")
        first_label, _, last_label = seats.partition("..")
        row = labels.row_number(row_label)
        if row is None:
            raise ValueError(f"there is no row {row_label}")
        numbers = [0, width - 2]
        if seats:
            found = [labels.find(row_label, label) for label in (first_label, last_label or first_label)]
            if None in found:
                raise ValueError(f"there is no seat {place}")
            numbers = sorted(at[1] for at in found if at is not None)
        runs.append((row * width + numbers[0], row * width + numbers[1]))
    return joined(runs)


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same positions in order, as runs that neither touch nor overlap."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def named(runs: Iterable[Run], labels: SeatLabels, width: int) -> list[str]:
    """These runs as an event file names them."""
    places = []
    for first, last in runs:
        for row in range(first // width, last // width + 1):
            start, end = max(first - row * width, 0), min(last - row * width, width - 2)
            row_label, (one, other) = labels.rows[row], (labels.seat(row, n)[1] for n in (start, end))
            whole = (start, end) == (0, width - 2)
            places.append(
                row_label if whole else f"{row_label}-{one}" if one == other else f"{row_label}-{one}..{other}"
            )
    return places


def has(runs: Mapping[Trait, Iterable[Run]], trait: Trait, position: int) -> bool:
    """Whether the seat at this position has the trait."""
    return any(first <= position <= last for first, last in runs.get(trait, ()))
