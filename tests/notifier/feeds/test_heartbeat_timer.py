"""The heartbeat timer writes to streams that have had no frame for a while."""

import asyncio

import pytest

from services.notifier.broadcast.heartbeat_timer import HEARTBEAT, HeartbeatTimer
from services.notifier.broadcast.hub import SLOTS, Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.settings import Settings
from services.notifier.streams.connection import Connection, Message

ROUND_S = 15.0


class RecordingConnection(Connection):
    transport_name = "test"

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []

    def write(self, message: Message) -> bool:
        self.messages.append(message)
        return True

    def end(self, data: bytes) -> bool:
        return True

    def abort(self) -> None:
        raise AssertionError("no stream is aborted here")


@pytest.mark.parametrize(
    ("frame_ago_s", "is_behind", "heartbeats"), [(0.0, False, 0), (2.9, False, 0), (3.1, False, 1), (0.0, True, 1)]
)
async def test_a_stream_with_a_recent_frame_gets_no_heartbeat_unless_it_is_behind(frame_ago_s, is_behind, heartbeats):
    hub = Hub(Settings(heartbeat_s=ROUND_S))
    topic, connection, now_s = Topic("event", now_s=0.0), RecordingConnection(), asyncio.get_running_loop().time()
    topic.add(connection)
    hub.timer_slots[0].add(connection)
    topic.written_s = now_s - frame_ago_s
    topic.revision += is_behind
    for slot in range(SLOTS):
        HeartbeatTimer(hub)._tick(slot, now_s)
    assert connection.messages.count(HEARTBEAT) == heartbeats
