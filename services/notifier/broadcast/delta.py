"""Builds deltas for one event name of a topic, whose state consists of items that change one by one.

A delta holds the items that differ from the last frame. A newcomer between two frames gets a snapshot, so items that
differed at that moment are always in the next delta: an item that changed and changed back would stay wrong for them.
"""

from collections.abc import Callable, Collection, Mapping

from services.notifier.feeds.change_index import differing

Encoder = Callable[[Collection[str] | None], bytes]


class DeltaBuilder:
    """`update` sets the current items, `next_delta` returns what the next frame must say of them."""

    __slots__ = ("_changed", "_encode", "_items", "_pending", "_written")

    def __init__(self) -> None:
        self._items: Mapping[str, object] = {}
        self._written: Mapping[str, object] = {}
        self._changed: set[str] = set()
        self._pending: set[str] = set()
        self._encode: Encoder = lambda _: b"{}"

    def update(self, items: Mapping[str, object], encode: Encoder) -> bool:
        """Returns whether any item changed. `encode(names)` gives the bytes of these items, `encode(None)` of all."""
        changed = differing(self._items, items)
        self._items, self._encode = items, encode
        self._changed |= changed
        return bool(changed)

    def next_delta(self) -> bytes | None:
        """The items that differ from the last frame; `None` if all are as they were. Starts the next frame."""
        names = self._unsent() | self._pending
        self._written, self._changed, self._pending = self._items, set(), set()
        return self.encode(names) if names else None

    def snapshot_taken(self) -> None:
        """Somebody got the current state between two frames."""
        self._pending |= self._unsent()

    def _unsent(self) -> set[str]:
        return self._changed & differing(self._written, self._items)

    def encode(self, names: Collection[str]) -> bytes:
        """These items; all items if that is no longer, or if one of them is gone."""
        every = len(names) >= len(self._items) or not all(name in self._items for name in names)
        return self._encode(None if every else names)

    def encode_all(self) -> bytes:
        return self._encode(None)
