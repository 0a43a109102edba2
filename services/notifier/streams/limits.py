"""Limits of open streams: per process, per fan or order, and by the headroom of the process.

A rejected stream is answered 200 with `retry`, an event that names the reason, and an end: an EventSource would never
reconnect after any other answer.
"""

import asyncio
from collections import Counter
from math import ceil

from services.notifier.headroom import Headroom
from services.notifier.problems import StreamRejected
from services.notifier.settings import Settings


class StreamLimiter:
    """Counts open streams. Every `acquire` that returns is followed by one `release`."""

    def __init__(self, settings: Settings, headroom: Headroom) -> None:
        self._settings, self._headroom = settings, headroom
        self._per_identity = ceil(settings.streams_per_identity / settings.processes)
        self._by_identity: Counter[str] = Counter()
        self._open = self._rejected = 0

    def counts(self) -> dict[str, int]:
        """Open streams, and those rejected since the start, as a load frame has them."""
        return {"streams_open": self._open, "streams_rejected": self._rejected}

    def acquire(self, identity: str) -> None:
        """Raises `StreamRejected`."""
        if reason := self._reason_against(identity):
            self._rejected += 1
            raise StreamRejected(reason)
        self._open += 1
        self._by_identity[identity] += 1

    def _reason_against(self, identity: str) -> str | None:
        settings = self._settings
        if self._open >= settings.streams_max:
            return "full"
        if self._by_identity[identity] >= self._per_identity:
            return "identity"
        return self._headroom.shortage(asyncio.get_running_loop().time())

    def release(self, identity: str) -> None:
        self._open -= 1
        self._by_identity[identity] -= 1
        if not self._by_identity[identity]:
            del self._by_identity[identity]
