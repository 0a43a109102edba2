"""The turnstile: how many streams there may be, how many new ones in a second, and how many for one fan or order.

Whoever does not get in is answered 200 with `retry` and an end: an EventSource gives up for good on anything else.
"""

import time
from collections import Counter
from collections.abc import Callable

from services.notifier.metrics import TURNED_AWAY
from services.notifier.settings import Settings


class TurnedAway(Exception):
    """Not now; come back later."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        TURNED_AWAY.labels(why).inc()


class Turnstile:
    """Counts; whoever entered leaves once."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._by_identity: Counter[str] = Counter()
        self._open = 0
        self._second, self._new = 0, 0

    def enter(self, identity: str) -> None:
        """One more; raises `TurnedAway`."""
        settings = self._settings
        if self._open >= settings.streams_max:
            raise TurnedAway("full")
        if self._by_identity[identity] >= settings.streams_per_identity:
            raise TurnedAway("identity")
        if not self._within_rate():
            raise TurnedAway("rate")
        self._open += 1
        self._by_identity[identity] += 1

    def leave(self, identity: str) -> None:
        """One less."""
        self._open -= 1
        self._by_identity[identity] -= 1
        if not self._by_identity[identity]:
            del self._by_identity[identity]

    def _within_rate(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._new = second, 0
        self._new += 1
        return self._new <= self._settings.streams_new_per_s
