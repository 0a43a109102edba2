"""The hub: one frame, many sockets. A connection costs one small object here: no task, no queue and no timer.

Updates are conflated per topic: the first at once, then at most one frame a window, of what differs from the last one;
the latest wins. A reader that does not read is skipped, later given the current snapshot or cut off, and never delays
another.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import suppress

from services.notifier.broadcast import frames
from services.notifier.broadcast.topic import Topic
from services.notifier.metrics import (
    AGE,
    CONFLATED,
    ENDED,
    FAN_OUT,
    FRAMES,
    GAPS,
    OPENED,
    PAUSED,
    RECONNECTS,
    REPLAYS,
    SKIPPED,
    STREAMS,
)
from services.notifier.settings import Settings
from services.notifier.streams.connection import Connection, Message
from shared.runtime.clock import now_ms
from shared.runtime.logging import data

log = logging.getLogger("onsale.notifier")
SLICE = 500
BEATS = 15
DRAIN_PER_S_MIN = 1_000


class Hub:
    """All connections of this process, by topic, and by beat: the part of the round in which they hear a heartbeat."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.beats: tuple[set[Connection], ...] = tuple(set() for _ in range(BEATS))
        self.paused: set[Connection] = set()
        self._leaving = 0
        self._changed: set[Topic] = set()
        self._wake = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self._leaving > 0

    def __len__(self) -> int:
        return sum(map(len, self.beats))

    def __iter__(self) -> Iterator[Connection]:
        return iter([connection for beat in self.beats for connection in beat])

    def open(self, connection: Connection, topic: Topic, *, last_event_id: bytes | None) -> None:
        """The connection listens from now on: it gets the current snapshot, unless it says that it has seen it."""
        topic.add(connection)
        self._beat_of(connection).add(connection)
        STREAMS.labels(topic.kind).inc()
        OPENED.labels(connection.way).inc()
        kind, head = topic.replay(last_event_id)
        REPLAYS.labels(kind).inc()
        if last_event_id is not None:
            RECONNECTS.inc()
            GAPS.inc(kind == "snapshot")
        connection.ends_s = _now_s() + self.settings.stream_max_age_s * random.uniform(0.5, 1.5)  # noqa: S311
        if self.write(connection, Message(self.retry() + head)):
            connection.seen = topic.revision

    def leave(self, connection: Connection, *, why: str = "left") -> None:
        """The connection is gone; saying so twice is saying it once."""
        topic = connection.topic
        if topic is None:
            return
        self._beat_of(connection).discard(connection)
        self._reads(connection)
        topic.remove(connection, now_s=_now_s())
        STREAMS.labels(topic.kind).dec()
        ENDED.labels(why).inc()
        connection.left()

    def _beat_of(self, connection: Connection) -> set[Connection]:
        return self.beats[(id(connection) >> 5) % BEATS]

    def retry(self) -> bytes:
        """When to come back; a crowd of this size no faster than one process lets in."""
        settings = self.settings
        crowd_ms = max(len(self), self._leaving) * 1000 // settings.streams_new_per_s
        return frames.retry(settings.retry_ms, max(settings.retry_ms, crowd_ms))

    def changed(self, topic: Topic) -> None:
        """The topic has news: at once if its window is over, else when it is."""
        if topic in self._changed:
            CONFLATED.labels(topic.kind).inc()
            return
        window_ms = self.settings.window_ms if topic.window_ms is None else topic.window_ms
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
        if not message.data:  # it changed, and changed back
            return
        topic.written_s, began_s = _now_s(), time.perf_counter()
        for at in range(0, len(listeners), SLICE):
            if at:
                await asyncio.sleep(0)
            FRAMES.labels(topic.kind).inc(self._tell(listeners[at : at + SLICE], topic, message, revision))
        if listeners:
            FAN_OUT.labels(topic.kind).observe(time.perf_counter() - began_s)
            AGE.labels(topic.kind).observe(max(0, now_ms() - happened_ms) / 1000)

    def _tell(self, listeners: list[Connection], topic: Topic, message: Message, revision: int) -> int:
        """How many it reached. The hottest loop there is: nothing in it is called that need not be."""
        reached = skipped = 0
        for connection in listeners:
            if connection.topic is not topic or connection.seen >= revision:
                continue
            if connection.paused_since_s is not None:
                skipped += 1
            elif self.write(connection, message):
                connection.seen = revision
                reached += 1
        SKIPPED.labels(topic.kind).inc(skipped)
        return reached

    def write(self, connection: Connection, message: Message) -> bool:
        """Writes, or notes that this reader has fallen behind. One broken connection never hurts another."""
        try:
            if connection.write(message):
                return True
        except Exception:
            log.exception("stream.broken", extra=data(transport=type(connection).__name__))
            self.cut(connection, why="broken")
            return False
        if connection.topic is not None:
            SKIPPED.labels(connection.topic.kind).inc()
            self.stopped_reading(connection)
        return False

    def stopped_reading(self, connection: Connection) -> None:
        """Its reader takes no more for now: it is skipped from here on."""
        if connection.paused_since_s is None:
            connection.paused_since_s = _now_s()
            self.paused.add(connection)
            PAUSED.inc()

    def reads_again(self, connection: Connection) -> None:
        """It gets the present instead of what it has missed."""
        self._reads(connection)
        topic = connection.topic
        if topic is not None and connection.seen < topic.revision and self.write(connection, topic.snapshot()):
            connection.seen = topic.revision
            FRAMES.labels(topic.kind).inc()

    def _reads(self, connection: Connection) -> None:
        if connection.paused_since_s is not None:
            connection.paused_since_s = None
            self.paused.discard(connection)
            PAUSED.dec()

    def cut(self, connection: Connection, *, why: str) -> None:
        """Hangs up at once, whatever still waits for this reader."""
        self.leave(connection, why=why)
        with suppress(Exception):  # what is broken may not even be hung up on
            connection.hang_up()

    def close(self, connection: Connection, *, why: str = "drain") -> None:
        """Says when to come back, and ends the stream; closing twice is closing once."""
        if connection.topic is None:
            return
        last, ended = self.retry(), False
        if connection.paused_since_s is None:
            with suppress(Exception):  # what is broken can only be hung up on
                ended = connection.end(last)
        if ended:
            self.leave(connection, why=why)
        else:
            self.cut(connection, why=why)

    async def drain(self) -> None:
        """Ends all streams in random order, a few at once if there are few, within the drain time."""
        leaving = list(self)
        self._leaving = max(1, len(leaving), self._leaving)
        random.shuffle(leaving)
        over_s = min(self.settings.drain_s, len(leaving) / DRAIN_PER_S_MIN)
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
