"""A channel of a feed: its current frame, which states this process has had, and when each item changed last.

A published version means the same state in every process. A listener who has seen a version known here can therefore
get all changes since: an item differs from what they saw only if it differs between two states known here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from services.notifier.metrics import STALE
from services.notifier.topics.topic import differing
from shared.contracts.frames import Frame
from shared.runtime.clock import now_ms

STATES_MAX = 512
AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Channel(Generic[AnyFrame]):
    """`request` gets the current frame from its service, `items` what of a frame changes one by one. `exact`: the
    version of the current frame means the same state in every process. `last_version`: the last published one.
    """

    def __init__(
        self,
        frame_type: type[AnyFrame],
        request: Callable[[], Awaitable[AnyFrame]],
        items: Callable[[AnyFrame], Mapping[str, object]],
    ) -> None:
        self.frame_type, self.request, self._items_of = frame_type, request, items
        self.frame: AnyFrame | None = None
        self.exact = False
        self.last_version: int | None = None
        self.received_s = asyncio.get_running_loop().time()
        self._forget()

    @property
    def current(self) -> AnyFrame:
        """The frame of a loaded channel."""
        assert self.frame is not None
        return self.frame

    def apply(self, frame: AnyFrame, *, exact: bool) -> bool:
        """Makes this the current frame, unless a later one is known or this one is not ready; returns whether it is."""
        if self.frame is not None:
            if _version(frame) <= _version(self.frame):
                STALE.inc(_version(frame) < _version(self.frame))
                return False
            if not frame.ready:
                return False
            if frame.epoch != self.frame.epoch:
                self._forget()
        self._set(frame, exact=exact and frame.ready)
        return True

    def replay(self, payloads: Sequence[bytes], fresh_s: float) -> bool:
        """Rebuilds the changes from the logged states of the last epoch. Returns whether the newest is at most
        `fresh_s` old. Raises `ValueError` if one is not a frame.
        """
        logged = [self.frame_type.model_validate_json(payload) for payload in payloads]
        states = sorted((frame for frame in logged if frame.ready), key=_version)
        if not states:
            return False
        newest, current, exact = states[-1], self.frame, self.exact
        if current is not None and current.epoch > newest.epoch:
            return False
        self._forget()
        for frame in states:
            if frame.epoch == newest.epoch:
                self._set(frame, exact=True)
        if current is not None and _version(current) >= _version(newest):
            self._set(current, exact=exact)
        self.last_version = max(logged[-1].version, self.last_version or 0)
        return now_ms() - newest.at_ms < fresh_s * 1000

    def since(self, version: int) -> set[str] | None:
        """The items that changed since this version, possibly a few more; `None` if the version is not known here."""
        number = self._numbers.get(version)
        return None if number is None else {name for name, at in self._changed.items() if at > number}

    def _forget(self) -> None:
        self._number = 0
        self._numbers: dict[int, int] = {}
        self._changed: dict[str, int] = {}
        self._items: Mapping[str, object] = {}

    def _set(self, frame: AnyFrame, *, exact: bool) -> None:
        self.frame, self.exact = frame, exact
        self._number += 1
        items = self._items_of(frame)
        self._changed.update(dict.fromkeys(differing(self._items, items), self._number))
        self._items = items
        if exact:
            self._numbers[frame.version] = self._number
            if len(self._numbers) > STATES_MAX:
                del self._numbers[next(iter(self._numbers))]


def _version(frame: Frame) -> tuple[int, int]:
    return frame.epoch, frame.version
