"""The turnstile: how many streams there may be, how many for one fan or order, and none while the process is late.

Whoever does not get in is answered 200 with `retry`, an event that says why, and an end: an EventSource gives up for
good on anything else.
"""

import asyncio
from collections import Counter

from services.notifier.headroom import Headroom
from services.notifier.metrics import TURNED_AWAY
from services.notifier.settings import Settings


class StreamRejected(Exception):
    """Not now; come back later."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        TURNED_AWAY.labels(why).inc()


class StreamLimiter:
    """Counts; whoever entered leaves once."""

    def __init__(self, settings: Settings, headroom: Headroom) -> None:
        self._settings, self._headroom = settings, headroom
        self._by_identity: Counter[str] = Counter()
        self._open = 0

    def enter(self, identity: str) -> None:
        """One more; raises `StreamRejected`."""
        settings = self._settings
        if self._open >= settings.streams_max:
            raise StreamRejected("full")
        if self._by_identity[identity] >= settings.streams_per_identity:
            raise StreamRejected("identity")
        if lack := self._headroom.lacks(asyncio.get_running_loop().time()):
            raise StreamRejected(lack)
        self._open += 1
        self._by_identity[identity] += 1

    def leave(self, identity: str) -> None:
        """One less."""
        self._open -= 1
        self._by_identity[identity] -= 1
        if not self._by_identity[identity]:
            del self._by_identity[identity]
