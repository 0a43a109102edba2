"""A case of a statement: the values it is run with, and how many rows it concerns."""

from collections.abc import Callable
from hashlib import md5
from typing import Any

Rows = int | Callable[[int], int]


class Case:
    """`rows`: the rows it concerns, as a number or as a function of the tables' size. `values` are added to the
    service's own; a statement with numbered parameters takes `args` instead. `is_rare`: no request waits for it, so it
    may read its whole table as long as the table was never analyzed.
    """

    def __init__(self, rows: Rows, /, *args: Any, is_rare: bool = False, **values: Any) -> None:
        self._rows, self._is_rare, self.args, self.values = rows, is_rare, args, values

    def rows(self, size: int, *, analyzed: bool) -> int:
        if self._is_rare and not analyzed:
            return size
        return max(1, self._rows if isinstance(self._rows, int) else self._rows(size))


def every(size: int) -> int:
    """The rows of a statement that concerns the whole table."""
    return size


def fan(number: int) -> str:
    """A loaded holder, as long and as random as a real one: an index of them is larger than one of numbers."""
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()


def ids(start: int, count: int, *, step: int = 5) -> list[str]:
    """Ids of loaded reservations. Their status depends on the number modulo five."""
    return [fan(i) for i in range(start, start + count * step, step)]
