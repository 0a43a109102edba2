"""The pulse: one timer for all streams. Each of its beats sends a fifteenth of them a comment if they are silent, ends
those that are old enough, and cuts off who has not read for too long; how late it comes tells how busy this process is.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.notifier.broadcast import frames
from services.notifier.broadcast.hub import BEATS, Hub
from services.notifier.metrics import GC_PAUSE, LOOP_LAG
from services.notifier.streams.connection import Connection, Message

HEARTBEAT = Message(frames.HEARTBEAT)


class HeartbeatTimer:
    """Beats for ever."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._step_s, self._just_s = hub.settings.heartbeat_s / BEATS, hub.settings.heartbeat_s / 5

    async def run(self) -> None:
        """Every stream hears something in every round."""
        clock, turn = asyncio.get_running_loop().time, 0
        due_s = clock()
        while True:
            due_s = max(due_s + self._step_s, clock())  # a beat that was missed is not made up for
            await asyncio.sleep(due_s - clock())
            LOOP_LAG.observe(clock() - due_s)
            turn = (turn + 1) % BEATS
            self._beat(turn, clock())

    def _beat(self, turn: int, now_s: float) -> None:
        hub = self._hub
        for connection in list(hub.beats[turn]):
            if connection.ends_s <= now_s:
                hub.close(connection, why="max_age")
            elif connection.paused_since_s is None and not _has_just_heard(connection, now_s - self._just_s):
                hub.write(connection, HEARTBEAT)
        for connection in list(hub.paused):
            since_s = connection.paused_since_s
            if since_s is not None and now_s - since_s > hub.settings.slow_reader_max_s:
                hub.cut(connection, why="slow")


def _has_just_heard(connection: Connection, since_s: float) -> bool:
    """Whether it got a frame since then: a round and a fifth is the longest silence."""
    topic = connection.topic
    return topic is not None and topic.written_s >= since_s and connection.seen >= topic.revision


@contextmanager
def collections_timed() -> Iterator[None]:
    """Every run of the garbage collector is measured meanwhile."""
    began_s = 0.0

    def timed(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.perf_counter()
        elif began_s:
            GC_PAUSE.observe(time.perf_counter() - began_s)

    gc.callbacks.append(timed)
    try:
        yield
    finally:
        gc.callbacks.remove(timed)
