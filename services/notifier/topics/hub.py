"""The hub writes each frame of a topic to all its connections. A connection costs no task, queue or timer.

Updates are conflated per topic: the first is written at once, then at most one frame per window with what differs from
the last one. A reader that does not read is skipped, later gets the current snapshot or is disconnected, and never
delays another.
"""

import asyncio
import math
import random
import time
from collections.abc import Iterator
from contextlib import suppress

from services.notifier.metrics import (
    CONFLATED,
    ENDED,
    EVENT_AGE,
    FAN_OUT,
    FRAMES,
    OPENED,
    PAUSED,
    RECONNECTS,
    REPLAYS,
    RESUME_FAILURES,
    SKIPPED,
    STREAMS,
)
from services.notifier.settings import Settings
from services.notifier.topics import frames
from services.notifier.topics.topic import Connection, Message, Topic
from services.notifier.tuning import DEFAULTS, Tuning
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger, request_fields
from shared.runtime.tracing import sale_log

log = get_logger("onsale.notifier")
WRITES_PER_SLICE = 500
SLOTS = 15
DRAIN_PER_S_MIN = 1_000
HEARTBEAT = Message(frames.HEARTBEAT)


class Hub:
    """All connections of this process, by topic and by the timer slot in which they get their heartbeat."""

    def __init__(self, settings: Settings, tuning: Tuning = DEFAULTS) -> None:
        self.settings, self.tuning = settings, tuning
        self.timer_slots: tuple[set[Connection], ...] = tuple(set() for _ in range(SLOTS))
        self.paused: set[Connection] = set()
        self._draining_n = 0
        self._scheduled: set[Topic] = set()
        self._wake = asyncio.Event()
        self._logged: dict[Connection, tuple[str | None, float]] = {}  # by request, and since when

    @property
    def draining(self) -> bool:
        return self._draining_n > 0

    def __len__(self) -> int:
        return sum(map(len, self.timer_slots))

    def __iter__(self) -> Iterator[Connection]:
        return iter([connection for slot in self.timer_slots for connection in slot])

    def open(
        self, connection: Connection, topic: Topic, *, last_event_id: bytes | None, lasts_s: float = math.inf
    ) -> None:
        """Adds the connection and writes the current snapshot, or what changed since `last_event_id`."""
        topic.add(connection)
        self._slot_of(connection).add(connection)
        STREAMS.labels(topic.kind).inc()
        OPENED.labels(connection.transport_name).inc()
        if sale_log.on and sale_log.wanted():
            self._logged[connection] = request_fields.get().get("request_id"), _now_s()
            sale_log.write("sale.connect", event_id=topic.event_id, kind=topic.kind, resumed=last_event_id is not None,
                           listeners=len(topic.connections))  # fmt: skip
        kind, head = topic.replay(last_event_id)
        REPLAYS.labels(kind).inc()
        if last_event_id is not None:
            RECONNECTS.inc()
            RESUME_FAILURES.inc(kind == "snapshot")
        max_age_s = self.tuning.stream_max_age_s * random.uniform(0.5, 1.5)  # noqa: S311
        connection.ends_s = _now_s() + min(max_age_s, lasts_s)
        if self.write(connection, Message(self.retry() + head)):
            connection.revision = topic.revision

    def remove(self, connection: Connection, *, reason: str = "left") -> None:
        """Removes a connection that is gone; does nothing if it was removed already."""
        topic = connection.topic
        if topic is None:
            return
        self._slot_of(connection).discard(connection)
        self._unpause(connection)
        topic.remove(connection, now_s=_now_s())
        STREAMS.labels(topic.kind).dec()
        ENDED.labels(reason).inc()
        if self._logged and (opened := self._logged.pop(connection, None)):
            request_id, since_s = opened
            sale_log.line("sale.disconnect", request_id=request_id, event_id=topic.event_id, kind=topic.kind,
                          reason=reason, ms=round((_now_s() - since_s) * 1000))  # fmt: skip
        connection.on_end()

    def _slot_of(self, connection: Connection) -> set[Connection]:
        return self.timer_slots[(id(connection) >> 5) % SLOTS]

    def retry(self) -> bytes:
        """The reconnection delay, spread so that all present connections return no faster than one process admits."""
        retry_ms = self.tuning.retry_ms
        spread_ms = max(len(self), self._draining_n) * 1000 // self.tuning.streams_new_per_s
        return frames.retry(retry_ms, max(retry_ms, spread_ms))

    def schedule(self, topic: Topic) -> None:
        """Schedules a frame of a topic that changed: at once if its window is over, else at the end of the window."""
        if topic in self._scheduled:
            CONFLATED.labels(topic.kind).inc()
            return
        window_ms = self.settings.window_ms if topic.window_ms is None else topic.window_ms
        topic.due_s = topic.written_s + window_ms / 1000
        self._scheduled.add(topic)
        self._wake.set()

    async def run(self) -> None:
        """Writes due frames, for ever."""
        while True:
            self._wake.clear()
            now_s = _now_s()
            due = [topic for topic in self._scheduled if topic.due_s <= now_s]
            for topic in due:
                self._scheduled.discard(topic)
                await self._write_frame(topic)
            if not due:
                next_s = min((topic.due_s for topic in self._scheduled), default=None)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_s):
                        await self._wake.wait()

    async def _write_frame(self, topic: Topic) -> None:
        """Writes one frame to all connections that have not got it, starting at a random one."""
        revision, connections = topic.revision, _rotated(topic.connections)
        message, happened_ms = topic.next_frame()
        if not message.data:  # all that changed has changed back
            return
        topic.written_s, began_s = _now_s(), time.perf_counter()
        for at in range(0, len(connections), WRITES_PER_SLICE):
            if at:
                await asyncio.sleep(0)
            FRAMES.labels(topic.kind).inc(
                self._write_slice(connections[at : at + WRITES_PER_SLICE], topic, message, revision)
            )
        if connections:
            FAN_OUT.labels(topic.kind).observe(time.perf_counter() - began_s)
            EVENT_AGE.labels(topic.kind).observe(max(0, now_ms() - happened_ms) / 1000)
        if sale_log.on:
            sale_log.write("sale.deliver", event_id=topic.event_id, kind=topic.kind, frame=topic.frame_id.decode(),
                           listeners=len(connections), bytes=len(message.data), age_ms=max(0, now_ms() - happened_ms),
                           ms=round((time.perf_counter() - began_s) * 1000, 2))  # fmt: skip

    def _write_slice(self, connections: list[Connection], topic: Topic, message: Message, revision: int) -> int:
        """Returns to how many it was written. The hottest loop of the notifier: it calls as little as possible."""
        written_n = skipped_n = 0
        for connection in connections:
            if connection.topic is not topic or connection.revision >= revision:
                continue
            if connection.paused_since_s is not None:
                skipped_n += 1
            elif self.write(connection, message):
                connection.revision = revision
                written_n += 1
        SKIPPED.labels(topic.kind).inc(skipped_n)
        return written_n

    def write(self, connection: Connection, message: Message) -> bool:
        """Writes, or pauses the connection if its reader does not read. Disconnects it on an error."""
        try:
            if connection.write(message):
                return True
        except Exception:
            log.exception("stream.write_failed", transport=type(connection).__name__)
            self.disconnect(connection, reason="broken")
            return False
        if connection.topic is not None:
            SKIPPED.labels(connection.topic.kind).inc()
            self.pause(connection)
        return False

    def pause(self, connection: Connection) -> None:
        """Its reader does not read: skips this connection until it does."""
        if connection.paused_since_s is None:
            connection.paused_since_s = _now_s()
            self.paused.add(connection)
            PAUSED.inc()

    def resume(self, connection: Connection) -> None:
        """Its reader reads again: writes the current snapshot instead of the missed frames."""
        self._unpause(connection)
        topic = connection.topic
        if topic is not None and connection.revision < topic.revision and self.write(connection, topic.snapshot()):
            connection.revision = topic.revision
            FRAMES.labels(topic.kind).inc()

    def _unpause(self, connection: Connection) -> None:
        if connection.paused_since_s is not None:
            connection.paused_since_s = None
            self.paused.discard(connection)
            PAUSED.dec()

    def disconnect(self, connection: Connection, *, reason: str) -> None:
        """Closes the connection at once, with unsent data lost."""
        self.remove(connection, reason=reason)
        with suppress(Exception):  # a broken connection may not even abort
            connection.abort()

    def close(self, connection: Connection, *, reason: str = "drain") -> None:
        """Writes the reconnection delay and ends the stream; does nothing if it has ended."""
        if connection.topic is None:
            return
        last, ended = self.retry(), False
        if connection.paused_since_s is None:
            with suppress(Exception):  # a broken connection can only be aborted
                ended = connection.end(last)
        if ended:
            self.remove(connection, reason=reason)
        else:
            self.disconnect(connection, reason=reason)

    async def drain(self) -> None:
        """Ends all streams in random order, spread over at most `drain_s`; few streams take less."""
        connections = list(self)
        self._draining_n = max(1, len(connections), self._draining_n)
        random.shuffle(connections)
        over_s = min(self.settings.drain_s, len(connections) / DRAIN_PER_S_MIN)
        started_s = _now_s()
        for n, connection in enumerate(connections, 1):
            self.close(connection)
            ahead_s = started_s + over_s * n / len(connections) - _now_s()
            if ahead_s > 0.01 or n % WRITES_PER_SLICE == 0:
                await asyncio.sleep(max(0.0, ahead_s))


def _rotated(connections: list[Connection]) -> list[Connection]:
    """A copy that begins at a random element, so that no connection is always last."""
    start = random.randrange(len(connections)) if connections else 0  # noqa: S311 - fairness, not secrecy
    return connections[start:] + connections[:start]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class HeartbeatTimer:
    """One timer wheel for all streams: it ticks for ever, and a round of all slots takes `heartbeat_s`.

    Each tick serves one of `SLOTS` slots: it sends a heartbeat to silent streams, ends those at their maximum age, and
    disconnects readers that have not read for too long. How late a tick comes measures the lag of the event loop.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._step_s, self._recent_s = hub.tuning.heartbeat_s / SLOTS, hub.tuning.heartbeat_s / 5

    async def run(self) -> None:
        """Sends every stream something in every round."""
        clock, slot = asyncio.get_running_loop().time, 0
        due_s = clock()
        while True:
            due_s = max(due_s + self._step_s, clock())  # missed ticks are not made up for
            await asyncio.sleep(due_s - clock())
            slot = (slot + 1) % SLOTS
            self._tick(slot, clock())

    def _tick(self, slot: int, now_s: float) -> None:
        hub = self._hub
        for connection in list(hub.timer_slots[slot]):
            if connection.ends_s <= now_s:
                hub.close(connection, reason="max_age")
            elif connection.paused_since_s is None and not _recently_written(connection, now_s - self._recent_s):
                hub.write(connection, HEARTBEAT)
        for connection in list(hub.paused):
            since_s = connection.paused_since_s
            if since_s is not None and now_s - since_s > hub.tuning.slow_reader_max_s:
                hub.disconnect(connection, reason="slow")


def _recently_written(connection: Connection, since_s: float) -> bool:
    """Whether it got a frame since then. The longest silence of a stream is therefore 1.2 rounds."""
    topic = connection.topic
    return topic is not None and topic.written_s >= since_s and connection.revision >= topic.revision
