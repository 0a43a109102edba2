"""The event `seats` of one topic: all seats it shows at once, then what changed. If it shows the whole hall it says so,
as a listener may have asked for a part.

A delta names every seat that changed since the frame before it, also one that changed back: whoever has a state of some
version in between, read from inventory, has the state of the delta afterwards.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping

import orjson

from shared.rules import seat_codes


class SeatPart:
    """The seats as they are and as they were sent. `_sent` is the version of the last frame; 0 if it is no version."""

    def __init__(self, *, whole_hall: bool) -> None:
        self._more = {"all": True} if whole_hall else {}
        self._codes = b""
        self._epoch, self._version, self._sent = -1, 0, 0
        self._beginnings = self._changes = 0
        self._changed: set[int] = set()

    def update(self, codes: bytes, *, epoch: int, version: int) -> Mapping[str, object]:
        """Sets the state; returns the items that the topic compares. A hall with other seats or of another epoch begins
        anew: then all items differ, which makes the next frame a snapshot.
        """
        if epoch != self._epoch or len(codes) != len(self._codes):
            self._epoch, self._sent = epoch, version
            self._beginnings += 1
            self._changes += 1
            self._changed.clear()
        elif changed := seat_codes.differing(self._codes, codes):
            self._changed.update(changed)
            self._changes += 1
        self._codes, self._version = codes, version
        return {"beginnings": self._beginnings, "changes": self._changes}

    def encode(self, names: Collection[str] | None) -> bytes:
        """A snapshot, or the changes since the last frame."""
        if names is None or not self._sent:
            return orjson.dumps(
                {"v": self._version, "s": b64encode(seat_codes.pack(self._codes)).decode(), **self._more}
            )
        data = seat_codes.encode_changes(self._codes, sorted(self._changed))
        body = {"v": self._version, "after": self._sent, "d": b64encode(data).decode(), **self._more}
        self._sent = self._version
        self._changed.clear()
        return orjson.dumps(body)
