"""The heartbeat timer writes to streams that have had no frame for a while; streams end at different ages."""

import asyncio

import pytest

from services.notifier.settings import Settings
from services.notifier.topics.hub import HEARTBEAT, SLOTS, HeartbeatTimer, Hub
from services.notifier.topics.topic import Connection, Message, Topic
from services.notifier.tuning import Tuning
from tests.notifier.page import update_line

ROUND_S = 15.0


class RecordingConnection(Connection):
    transport_name = "asgi"

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
    hub = Hub(Settings(), Tuning(heartbeat_s=ROUND_S))
    topic, connection, now_s = Topic("event", now_s=0.0), RecordingConnection(), asyncio.get_running_loop().time()
    topic.add(connection)
    hub.timer_slots[0].add(connection)
    topic.written_s = now_s - frame_ago_s
    topic.revision += is_behind
    for slot in range(SLOTS):
        HeartbeatTimer(hub)._tick(slot, now_s)
    assert connection.messages.count(HEARTBEAT) == heartbeats


async def test_the_maximum_ages_of_streams_are_spread():
    hub, topic, now_s = (
        Hub(Settings(), Tuning(stream_max_age_s=1000)),
        Topic("event", now_s=0.0),
        asyncio.get_running_loop().time(),
    )
    update_line(topic, 1)
    connections = [RecordingConnection() for _ in range(30)]
    for connection in connections:
        hub.open(connection, topic, last_event_id=None)
        hub.remove(connection)
    left_s = [connection.ends_s - now_s for connection in connections]
    assert all(500 <= each_s < 1505 for each_s in left_s)
    assert max(left_s) - min(left_s) > 100
