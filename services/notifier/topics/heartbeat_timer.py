"""The heartbeat timer: one timer wheel for all streams.

Each tick serves one of `SLOTS` slots: it sends a heartbeat to silent streams, ends those at their maximum age, and
disconnects readers that have not read for too long. How late a tick comes measures the lag of the event loop.
"""

import asyncio

from services.notifier.topics import frames
from services.notifier.topics.hub import SLOTS, Hub
from services.notifier.topics.topic import Connection, Message

HEARTBEAT = Message(frames.HEARTBEAT)


class HeartbeatTimer:
    """Ticks for ever; a round of all slots takes `heartbeat_s`."""

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
