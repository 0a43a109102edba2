"""A part: one event name's share of what a topic says, made of items that change one by one.

A delta tells the items that differ from the last frame. Who comes in between is given the present, so what was pending
then is told in any case: otherwise an item that goes and comes back would stay wrong for them.
"""

from collections.abc import Callable, Collection, Mapping

from services.notifier.feeds.change_index import differing

Tell = Callable[[Collection[str] | None], bytes]


class DeltaBuilder:
    """`show` takes in the latest, `take` answers what the next frame must say of it."""

    __slots__ = ("_changed", "_items", "_owed", "_tell", "_written")

    def __init__(self) -> None:
        self._items: Mapping[str, object] = {}
        self._written: Mapping[str, object] = {}
        self._changed: set[str] = set()
        self._owed: set[str] = set()
        self._tell: Tell = lambda _: b"{}"

    def show(self, items: Mapping[str, object], tell: Tell) -> bool:
        """Whether it is news. `tell(names)` says these items, `tell(None)` all there are."""
        changed = differing(self._items, items)
        self._items, self._tell = items, tell
        self._changed |= changed
        return bool(changed)

    def snapshot_taken(self) -> bytes | None:
        """What differs from the last frame, once; nothing when everything is as it was."""
        names = self._news() | self._owed
        self._written, self._changed, self._owed = self._items, set(), set()
        return self.tell(names) if names else None

    def next(self) -> None:
        """Somebody is told the present before the next frame."""
        self._owed |= self._news()

    def _news(self) -> set[str]:
        return self._changed & differing(self._written, self._items)

    def tell(self, names: Collection[str]) -> bytes:
        """These items; everything if that is no more, or if one of them is gone."""
        whole = len(names) >= len(self._items) or not all(name in self._items for name in names)
        return self._tell(None if whole else names)

    def whole(self) -> bytes:
        return self._tell(None)
