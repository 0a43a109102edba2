"""A fan's position never grows, and an estimated wait grows only with a reason that the answer names.

Only answers one after the other are compared: the later request was sent when the earlier answer was there. Two
gateways may have different frames for a moment; the answers tell by their heads. A fault that the history names
explains both for a minute: a gateway that has just started knows no earlier head.
"""

from datetime import datetime
from typing import NamedTuple

from onsale.history.checks.books import Books
from onsale.history.checks.check import Check, Faults, Line, Place, name_of, place_of

ON_THE_WAY_MS = 2_000  # gateways may have different frames for so long
FRAME_STALE_MS = 15_000  # a gateway may answer from a frame of this age, and so name a reason that is this old


class _Answer(NamedTuple):
    number: int
    at_ms: int
    position: int | None
    wait_s: int | None
    head: int | None


class Positions(Check):
    """Compares each answer with the one before, for each place."""

    TITLE = "positions never grow, estimates only with a reason"
    KINDS = frozenset({"joined", "position", "called"})

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._last: dict[Place, _Answer] = {}

    def read(self, number: int, line: Line) -> None:
        place = place_of(line)
        if place is None:
            return
        last = self._last.get(place)
        now = _Answer(
            number, line["at_ms"], line.get("position_in_queue"), line.get("estimated_wait_time"), _head(line)
        )
        if last is not None:
            if line["sent_ms"] < last.at_ms:
                return
            self.compared += 1
            if not (_is_older(last, now) or self._faults.explain(last.at_ms, now.at_ms)):
                self._compare(place, last, now, line)
        self._last[place] = now

    def _compare(self, place: Place, last: _Answer, now: _Answer, line: Line) -> None:
        numbers, name = (last.number, now.number), name_of(place)
        if grew(last.position, now.position):
            self.violated(f"{name} went back from position {last.position} to {now.position}", *numbers)
        if grew(last.wait_s, now.wait_s) and not _explained(last, line):
            self.violated(f"the wait of {name} grew from {last.wait_s} to {now.wait_s} s without a reason", *numbers)

    async def compare(self, books: Books) -> None:
        """Everything was decided while reading."""


def _head(line: Line) -> int | None:
    """The head that this answer was computed from. The answer to a joining fan does not name it, but tells it by the
    position.
    """
    position, head = line.get("position_in_queue"), line.get("head_seq")
    if line["what"] == "joined" and position is not None:
        head = (line.get("rank") or line["join_seq"]) - position
    return int(head) if head else None


def _is_older(last: _Answer, now: _Answer) -> bool:
    """Whether another gateway answered, whose newer frame was still on its way."""
    return bool(last.head and now.head and now.head < last.head and now.at_ms - last.at_ms <= ON_THE_WAY_MS)


def grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _explained(last: _Answer, line: Line) -> bool:
    """Whether the answer names a reason that came after the last one."""
    change = line.get("estimate_changed")
    if not change:
        return False
    return datetime.fromisoformat(change["at"]).timestamp() * 1000 >= last.at_ms - FRAME_STALE_MS
