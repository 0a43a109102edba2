"""What stands on the rows and chairs of a section: its row and seat labels.

A row's seats are numbered from a rule, such as `odd from the right`, or one by one. Without labels rows and seats are
counted from 1. A seat is called by its labels everywhere, also in its id: `{section_id}-{row}-{seat}`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self

import orjson
from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from shared.contracts.fields import LABEL, Body

LABELS_CACHED_MAX = 1_000
ROWS_MAX = SEATS_PER_ROW_MAX = 1000
RULE = "consecutive, odd or even, then perhaps the first number and the side, such as `odd from 101 from the right`"
_label = re.compile(LABEL)
_rule = re.compile(r"(consecutive|odd|even)(?: from (0|[1-9][0-9]{0,6}))?(?: from the (left|right))?")
_STARTS = {"consecutive": 1, "odd": 1, "even": 2}


def _read_label(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _label.fullmatch(text):
        raise ValueError("a label has 1 to 8 letters from a to z or digits, such as A, AA, 12 or 12b")
    return text


def _read_rule(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"write {RULE}, or a list of labels")
    numbers(value, 0)
    return value


def numbers(rule: str, count: int) -> tuple[str, ...]:
    """The labels of so many seats by this rule, from left to right. Raises `ValueError`."""
    found = _rule.fullmatch(rule)
    if found is None:
        raise ValueError(f"write {RULE}, or a list of labels")
    kind, first, side = found.groups()
    start = int(first) if first else _STARTS[kind]
    if kind != "consecutive" and start % 2 != _STARTS[kind] % 2:
        raise ValueError(f"{start} is not {kind}")
    labels = tuple(str(start + n * (1 if kind == "consecutive" else 2)) for n in range(count))
    return labels[::-1] if side == "right" else labels


def rule_of(labels: Sequence[str]) -> str | None:
    """The rule that gives these labels, if there is one."""
    if not labels or not all(label.isdecimal() for label in labels):
        return None
    start = min(map(int, labels))
    kinds = ("odd" if start % 2 else "even", "consecutive")
    firsts = {kind: "" if start == _STARTS[kind] else f" from {start}" for kind in kinds}
    rules = (f"{kind}{firsts[kind]}{side}" for kind in kinds for side in ("", " from the right"))
    return next((rule for rule in rules if numbers(rule, len(labels)) == tuple(labels)), None)


Label = Annotated[
    str,
    BeforeValidator(_read_label),
    WithJsonSchema({"type": "string", "pattern": f"^{LABEL}$", "description": "A label."}),
]
RowName = Annotated[
    Annotated[int, Field(ge=1, le=99_999_999), Tag("number")] | Annotated[Label, Tag("label")],
    Discriminator(lambda value: "number" if isinstance(value, int) else "label"),
]
Rule = Annotated[str, BeforeValidator(_read_rule), WithJsonSchema({"type": "string", "pattern": f"^{_rule.pattern}$"})]
Seats = Annotated[
    Annotated[Rule, Tag("rule")]
    | Annotated[list[Label], Field(min_length=1, max_length=SEATS_PER_ROW_MAX), Tag("seats")],
    Discriminator(lambda value: "seats" if isinstance(value, list) else "rule"),
]


class LabelledRow(Body):
    """A row whose seats are labelled otherwise than the section's."""

    row: Label
    seats: Seats


RowLabels = Annotated[
    list[
        Annotated[
            Annotated[Label, Tag("label")] | Annotated[LabelledRow, Tag("row")],
            Discriminator(lambda value: "row" if isinstance(value, dict | LabelledRow) else "label"),
        ]
    ],
    Field(min_length=1, max_length=ROWS_MAX),
]
Rows = Annotated[
    Annotated[int, Field(ge=1, le=ROWS_MAX), Tag("count")] | Annotated[RowLabels, Tag("rows")],
    Discriminator(lambda value: "rows" if isinstance(value, list) else "count"),
]


class LabelsPart(Body):
    """The labels of a section as its event file gives them, and as they are stored; without any there are none."""

    rows: RowLabels | None = None
    seats: Seats | None = None


@dataclass(frozen=True)
class SeatLabels:
    """The labels of a section: of its rows from the front, and of the seats of each from left to right. Many rows have
    the same seats, so they are kept once: `of_rows` has the place of each row's in `seats`.
    """

    rows: tuple[str, ...]
    seats: tuple[tuple[str, ...], ...]
    of_rows: tuple[int, ...]

    @classmethod
    def of(cls, rows: int, seats_per_row: int, labels: LabelsPart | None = None) -> Self:
        """Raises `ValueError` for labels that are given twice, or too many or too few."""
        part = labels or LabelsPart()
        named = part.rows if part.rows is not None else [str(n) for n in range(1, rows + 1)]
        names = tuple(one.row if isinstance(one, LabelledRow) else one for one in named)
        _require_once(names, "rows: two rows are called {}")
        found: dict[tuple[str, ...], int] = {}
        of_rows = []
        for name, one in zip(names, named, strict=True):
            own = one.seats if isinstance(one, LabelledRow) else part.seats
            of_rows.append(found.setdefault(_seat_labels(name, own, seats_per_row), len(found)))
        return cls(names, tuple(found), tuple(of_rows))

    def front(self, rows: int) -> list[tuple[str, tuple[str, ...]]]:
        """The first rows with the labels of their seats."""
        return [(name, self.seats[n]) for name, n in zip(self.rows[:rows], self.of_rows, strict=False)]

    def seat(self, row: int, number: int) -> tuple[str, str]:
        """The labels of a seat; both are counted from 0."""
        return self.rows[row], self.seats[self.of_rows[row]][number]

    def row_number(self, row: int | str) -> int | None:
        """Which row has this label, counted from 0."""
        return self._rows.get(str(row))

    def find(self, row: str, seat: str) -> tuple[int, int] | None:
        """Where the seat with these labels is: row and number, both counted from 0."""
        row_number = self._rows.get(row)
        number = None if row_number is None else self._numbers[self.of_rows[row_number]].get(seat)
        return None if row_number is None or number is None else (row_number, number)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {label: n for n, label in enumerate(self.rows)}

    @cached_property
    def _numbers(self) -> list[dict[str, int]]:
        return [{label: n for n, label in enumerate(labels)} for labels in self.seats]


@lru_cache(maxsize=LABELS_CACHED_MAX)
def _stored(rows: int, seats_per_row: int, labels: bytes | None) -> SeatLabels:
    return SeatLabels.of(rows, seats_per_row, LabelsPart.model_validate_json(labels) if labels else None)


def stored_labels(rows: int, seats_per_row: int, labels: Mapping[str, Any] | None = None) -> SeatLabels:
    """The labels of a section as inventory keeps it."""
    return _stored(rows, seats_per_row, orjson.dumps(labels) if labels else None)


def _seat_labels(row: str, seats: str | list[str] | None, count: int) -> tuple[str, ...]:
    if not isinstance(seats, list):
        return numbers(seats or "consecutive", count)
    if len(seats) != count:
        raise ValueError(
            f"seats: row {row} has {len(seats)} seats with a label, and seats_per_row is {count}: "
            "put rows of another length into a section of their own"
        )
    _require_once(seats, f"seats: two seats of row {row} are called {{}}")
    return tuple(seats)


def _require_once(labels: Iterable[str], says: str) -> None:
    twice = next((label for label, n in Counter(labels).items() if n > 1), None)
    if twice is not None:
        raise ValueError(says.format(twice))
