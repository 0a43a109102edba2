"""Holds a sale to what it told its fans: a history, the databases and the provider's book are compared.

The checker shares no code with what it checks. It reads the file once, line by line, keeps a few words for each place,
hold and order, and then reads each table once.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from onsale.history.checks.check import Books, Check, Faults, Keys, Line, Sources, Violation, open_books
from onsale.history.checks.money import Money
from onsale.history.checks.orders import Calls, Orders
from onsale.history.checks.places import Places, Positions
from onsale.history.checks.price_types import Types
from onsale.history.checks.seats import Holds, Seats


class BadHistory(Exception):
    """A line of the file is no line of a history."""


class Checked(NamedTuple):
    """One check: how much it compared, how many violations it found."""

    title: str
    compared: int
    broken: int


class Report(NamedTuple):
    """What was read, what was checked, and what was broken."""

    read: Counter[str]
    checked: list[Checked]
    violations: list[Violation]

    @property
    def is_clean(self) -> bool:
        return not any(check.broken for check in self.checked)


async def check(path: Path, sources: Sources, events: Collection[str] = ()) -> Report:
    """Checks the whole history, or that of these events."""
    async with open_books(sources, events) as books:
        faults = Faults()
        checks = [
            Places(faults), Calls(await _windows(books)), Positions(faults), Holds(), Seats(), Types(), Orders(),
            Keys(), Money(),
        ]  # fmt: skip
        read = read_through(path, checks, faults, events)
        for each in checks:
            await each.compare(books)
    return Report(
        read,
        [Checked(each.TITLE, each.compared, each.broken) for each in checks],
        [violation for each in checks for violation in each.violations],
    )


def read_through(path: Path, checks: Collection[Check], faults: Faults, events: Collection[str]) -> Counter[str]:
    """Shows every line to the checks that want its kind; how many there were of each kind."""
    readers: dict[str, list[Check]] = {}
    for each in checks:
        for kind in each.KINDS:
            readers.setdefault(kind, []).append(each)
    read = Counter[str]()
    for number, line in lines(path):
        what = line["what"]
        if events and line.get("event_id", next(iter(events))) not in events:
            continue
        read[what] += 1
        if what in Faults.KINDS:
            faults.read(line)
        for each in readers.get(what, ()):
            each.read(number, line)
    return read


def lines(path: Path) -> Iterator[tuple[int, Line]]:
    """The lines of a history, numbered from 1. Raises `BadHistory`."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
                if not (isinstance(line["what"], str) and isinstance(line["at_ms"], int)):
                    raise TypeError
            except (ValueError, TypeError, KeyError) as broken:
                raise BadHistory(f"Line {number} of {path} is no line of a history.") from broken
            yield number, line


async def _windows(books: Books) -> dict[str, int]:
    """The shortest liveness window that each room ever had, in ms."""
    return {row["event_id"]: row["window_ms"] async for row in books.rows("queue", "liveness_windows")}
