"""What a statement is tried with, and how many rows it concerns."""

from collections.abc import Callable
from hashlib import md5
from typing import Any

Rows = int | Callable[[int], int]


class Case:
    """`rows`: how many it is about, as a number or from the size of the tables; `values` beside the service's own, or
    `args` for a statement that has them by number. `is_rare`: nobody waits for it, so it may read its table once while
    that was never counted.
    """

    def __init__(self, rows: Rows, /, *args: Any, is_rare: bool = False, **values: Any) -> None:
        self._rows, self._is_rare, self.args, self.values = rows, is_rare, args, values

    def rows(self, size: int, *, counted: bool) -> int:
        if self._is_rare and not counted:
            return size
        return max(1, self._rows if isinstance(self._rows, int) else self._rows(size))


def every(size: int) -> int:
    """A statement about all there is."""
    return size


def ids(start: int, count: int, *, step: int = 5) -> list[str]:
    """Reservations as they are loaded: their status follows from the number, modulo five."""
    return [md5(str(i).encode(), usedforsecurity=False).hexdigest() for i in range(start, start + count * step, step)]
