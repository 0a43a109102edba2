"""What all checks of a history have in common: findings, lines of the file, faults that the history names."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Any, NamedTuple

from onsale.history.checks.books import Books

KEPT_MAX = 50  # violations of one check that are kept; all are counted
FAULT_LASTS_MS = 60_000  # how long after its end a noted fault may still be the reason of what fans read
CLOCKS_MS = 2_000  # clocks of one machine's processes and engines agree better than this

Line = dict[str, Any]
Place = tuple[str, int, int, int]  # event_id, epoch, lane, join_seq


class Violation(NamedTuple):
    """One promise that was broken, and the lines of the history that prove it, counted from 1."""

    check: str
    sentence: str
    lines: tuple[int, ...] = ()


class Check(ABC):
    """Reads every line of `KINDS` in order, and is then compared with the books."""

    TITLE: str
    KINDS: frozenset[str]

    def __init__(self) -> None:
        self.compared = 0  # acknowledgements, or pairs of them, that were held to something
        self.broken = 0
        self.violations: list[Violation] = []

    def violated(self, sentence: str, *lines: int) -> None:
        self.broken += 1
        if self.broken <= KEPT_MAX:
            self.violations.append(Violation(self.TITLE, sentence, tuple(sorted({*lines}))))

    @abstractmethod
    def read(self, number: int, line: Line) -> None:
        """One line of the history, numbered from 1."""

    @abstractmethod
    async def compare(self, books: Books) -> None:
        """Compares what was read with the databases and the provider's book."""


class Faults:
    """When something was broken on purpose, by the notes `fault_began`, `fault_ended` and `fault`."""

    KINDS = frozenset({"fault_began", "fault_ended", "fault"})

    def __init__(self) -> None:
        self._began: list[int] = []
        self._ended: list[int] = []

    def read(self, line: Line) -> None:
        if line["what"] != "fault_ended":
            self._began.append(line["at_ms"])
        if line["what"] != "fault_began":
            self._ended.append(line["at_ms"] + FAULT_LASTS_MS)

    def explain(self, from_ms: int, to_ms: int) -> bool:
        """Whether any fault lasted, or had ended within a minute, at some time between these two."""
        began = bisect_right(self._began, to_ms)
        over = bisect_right(self._ended, from_ms - 1)
        return began > over


def place_of(line: Line) -> Place | None:
    """The place that this line is about, if it names one completely."""
    place = (line.get("event_id"), line.get("epoch"), line.get("lane"), line.get("join_seq"))
    return None if None in place else place  # type: ignore[return-value]


def name_of(place: Place) -> str:
    event_id, epoch, lane, join_seq = place
    return f"place {join_seq} of lane {lane}, epoch {epoch}, of {event_id}"
