"""The change index of one channel: which states this process has had, and when each item changed last.

A published version means the same state in every process. A listener who has seen a version known here can therefore
get all changes since: an item differs from what they saw only if it differs between two states known here.
"""

from collections.abc import Mapping

STATES_MAX = 512


class ChangeIndex:
    """The last states of one channel, in order of arrival."""

    def __init__(self) -> None:
        self._number = 0
        self._numbers: dict[int, int] = {}
        self._changed: dict[str, int] = {}
        self._items: Mapping[str, object] = {}

    def record(self, version: int | None, items: Mapping[str, object]) -> None:
        """Adds the current state; `None` as version for a state that other processes may not have had."""
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
        """The items that changed since this version, possibly a few more; `None` if the version is not known here."""
        number = self._numbers.get(version)
        return None if number is None else {name for name, at in self._changed.items() if at > number}


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> set[str]:
    """The names of items that are new, gone or different."""
    gone = one.keys() - other.keys()
    return {name for name, item in other.items() if name not in one or one[name] != item} | gone
