"""The hub: one frame, many sockets. A connection costs one small object here: no task, no queue and no timer.

Updates are conflated per topic: the first at once, then at most one frame a window, which tells what differs
from the last; the latest wins. A reader that
does not read is skipped, later given the current snapshot or cut off, and never delays another.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import suppress

from services.notifier import frames
from services.notifier.metrics import AGE, DROPPED, FRAMES, SKIPPED, STREAMS
from services.notifier.settings import Settings
from services.notifier.topic import Connection, Message, Topic, body
from shared.clock import now_ms
from shared.logs import data

log = logging.getLogger("onsale.notifier")
SLICE = 500
NOTHING = body(b"")
DRAIN_PER_S_MIN = 1_000


class Hub:
    """All connections of this process, by topic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections: set[Connection] = set()
        self._changed: set[Topic] = set()
        self._wake = asyncio.Event()
        self._heartbeat = body(frames.HEARTBEAT)
        self.draining = False

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections))

    def open(self, connection: Connection, topic: Topic, *, last_event_id: bytes | None) -> None:
        """The connection listens from now on: it gets the current snapshot, unless it says that it has seen it."""
        head = frames.retry(self._settings.retry_ms)
        topic.add(connection)
        self._connections.add(connection)
        STREAMS.labels(topic.kind).inc()
        head += topic.since(last_event_id)
        connection.seen = topic.revision
        self._write(connection, topic, body(head))

    def leave(self, connection: Connection) -> None:
        """The connection is gone; saying so twice is saying it once."""
        topic = connection.topic
        if topic is None:
            return
        self._connections.discard(connection)
        topic.remove(connection, now_s=_now_s())
        STREAMS.labels(topic.kind).dec()
        if connection.catching_up is not None:
            connection.catching_up.cancel()

    def changed(self, topic: Topic) -> None:
        """The topic has news: at once if its window is over, else when it is."""
        if topic not in self._changed:
            window_ms = self._settings.window_ms if topic.window_ms is None else topic.window_ms
            topic.due_s = topic.written_s + window_ms / 1000
            self._changed.add(topic)
            self._wake.set()

    async def run(self) -> None:
        """Writes frames when they are due, for ever."""
        while True:
            self._wake.clear()
            now_s = _now_s()
            due = [topic for topic in self._changed if topic.due_s <= now_s]
            for topic in due:
                self._changed.discard(topic)
                await self._write_frame(topic)
            if not due:
                next_s = min((topic.due_s for topic in self._changed), default=None)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_s):
                        await self._wake.wait()

    async def _write_frame(self, topic: Topic) -> None:
        """The same bytes to everyone who has not seen them, starting somewhere else each time."""
        revision, listeners = topic.revision, _rotated(topic.connections)
        message, happened_ms = topic.take_frame()
        if not message["body"]:  # it changed, and changed back
            return
        topic.written_s = _now_s()
        for n, connection in enumerate(listeners, 1):
            if connection.topic is topic and connection.seen < revision:
                self._give(connection, topic, message, revision)
            if n % SLICE == 0:
                await asyncio.sleep(0)
        if listeners:
            AGE.labels(topic.kind).observe(max(0, now_ms() - happened_ms) / 1000)

    def _give(self, connection: Connection, topic: Topic, message: Message, revision: int) -> None:
        if connection.catching_up is not None:
            SKIPPED.labels(topic.kind).inc()
        elif self._write(connection, topic, message):
            connection.seen = revision
            FRAMES.labels(topic.kind).inc()

    def _write(self, connection: Connection, topic: Topic, message: Message) -> bool:
        """Writes, or notes that this reader has fallen behind. One broken connection never hurts another."""
        try:
            if connection.write(message):
                return True
        except Exception:
            log.exception("stream.broken", extra=data(kind=topic.kind))
            connection.hang_up()
            self.leave(connection)
            return False
        SKIPPED.labels(topic.kind).inc()
        connection.catching_up = asyncio.create_task(self._catch_up(connection, topic))
        return False

    async def _catch_up(self, connection: Connection, topic: Topic) -> None:
        """Waits until the reader reads again, and gives it the present; the only task a stream ever has."""
        try:
            async with asyncio.timeout(self._settings.slow_reader_max_s):
                await connection.send(NOTHING)
        except TimeoutError:
            connection.catching_up = None
            self._cut(connection, topic)
            return
        connection.catching_up = None
        if connection.topic is topic:
            connection.seen = topic.revision
            if self._write(connection, topic, topic.snapshot()):
                FRAMES.labels(topic.kind).inc()

    def _cut(self, connection: Connection, topic: Topic) -> None:
        DROPPED.labels(topic.kind).inc()
        self.leave(connection)
        connection.hang_up()

    async def heartbeat(self) -> None:
        """A comment to everyone, so that no proxy takes silence for death."""
        for n, connection in enumerate(self, 1):
            topic = connection.topic
            if topic is not None and connection.catching_up is None:
                self._write(connection, topic, self._heartbeat)
            if n % SLICE == 0:
                await asyncio.sleep(0)

    def close(self, connection: Connection) -> None:
        """Says when to come back, and ends the stream; closing twice is closing once."""
        if connection.topic is None:
            return
        behind = connection.catching_up is not None
        self.leave(connection)
        ended = False
        if not behind:
            with suppress(Exception):  # what is broken can only be hung up on
                ended = connection.write(body(frames.retry(self._settings.retry_ms), more=False))
        if not ended:
            connection.hang_up()

    async def drain(self) -> None:
        """Ends all streams in random order, a few at once if there are few, within the drain time."""
        self.draining = True
        leaving = list(self)
        random.shuffle(leaving)
        over_s = min(self._settings.drain_s, len(leaving) / DRAIN_PER_S_MIN)
        started_s = _now_s()
        for n, connection in enumerate(leaving, 1):
            self.close(connection)
            ahead_s = started_s + over_s * n / len(leaving) - _now_s()
            if ahead_s > 0.01 or n % SLICE == 0:
                await asyncio.sleep(max(0.0, ahead_s))


def _rotated(connections: list[Connection]) -> list[Connection]:
    """A copy that begins at a random place: nobody is always last."""
    start = random.randrange(len(connections)) if connections else 0  # noqa: S311 - fairness, not secrecy
    return connections[start:] + connections[:start]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
