"""History: which states of one channel this process has had, and when each item of it changed last.

A version that was shown is the same state in every process. So whoever has seen one that is known here can be told all
that changed since, and nothing can be missing: an item differs from what it was only if it differs between two states
known here.
"""

from collections.abc import Mapping

STATES_MAX = 512


class ChangeIndex:
    """States in the order in which they came."""

    def __init__(self) -> None:
        self._number = 0
        self._numbers: dict[int, int] = {}
        self._changed: dict[str, int] = {}
        self._items: Mapping[str, object] = {}

    def note(self, version: int | None, items: Mapping[str, object]) -> None:
        """The channel's state now; without a version it is one that nobody else need have had."""
        self._number += 1
        for name in differing(self._items, items):
            self._changed[name] = self._number
        self._items = items
        if version is None:
            return
        self._numbers[version] = self._number
        if len(self._numbers) > STATES_MAX:
            del self._numbers[next(iter(self._numbers))]

    def since(self, version: int) -> set[str] | None:
        """What has changed since this version was shown, a few items too many perhaps; `None` if nobody can tell."""
        number = self._numbers.get(version)
        return None if number is None else {name for name, at in self._changed.items() if at > number}


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    """Items that are new, gone or another."""
    gone = one.keys() - other.keys()
    return {name for name, item in other.items() if name not in one or one[name] != item} | gone
