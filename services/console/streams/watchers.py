"""Those who watch one event. Each has a short queue of messages; whoever leaves it unread is cut and reconnects."""

import asyncio
from collections import deque
from collections.abc import Callable

from services.console.metrics import CUT, STREAMS


class Watcher:
    """One stream: `on_cut` closes its connection at once."""

    def __init__(self, messages_max: int) -> None:
        self._messages: deque[bytes] = deque()
        self._messages_max = messages_max
        self._wake = asyncio.Event()
        self.ended = False
        self.on_cut: Callable[[], object] = lambda: None

    def add(self, message: bytes) -> None:
        """Queues a message, or cuts the stream if too many are unread."""
        if self.ended:
            return
        if len(self._messages) >= self._messages_max:
            CUT.inc()
            self.end()
            self.on_cut()
            return
        self._messages.append(message)
        self._wake.set()

    def end(self) -> None:
        """No more messages."""
        self.ended = True
        self._wake.set()

    async def next(self, *, within_s: float) -> bytes:
        """All queued messages, as soon as there is one; empty when time is up or the stream has ended."""
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await self._wake.wait()
        except TimeoutError:
            return b""
        self._wake.clear()
        queued = b"".join(self._messages)
        self._messages.clear()
        return queued


class Watchers:
    """The open streams of one event."""

    def __init__(self, messages_max: int) -> None:
        self._messages_max = messages_max
        self._open: set[Watcher] = set()

    @property
    def count(self) -> int:
        return len(self._open)

    def add(self) -> Watcher:
        watcher = Watcher(self._messages_max)
        self._open.add(watcher)
        STREAMS.inc()
        return watcher

    def remove(self, watcher: Watcher) -> None:
        self._open.discard(watcher)
        STREAMS.dec()

    def publish(self, message: bytes) -> None:
        """The same bytes to everybody."""
        for watcher in list(self._open):
            watcher.add(message)

    def end(self) -> None:
        for watcher in self._open:
            watcher.end()
