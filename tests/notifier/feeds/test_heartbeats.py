"""Open streams count as heartbeats of their places; reports are sent without places too, and a final one at the end.

The heartbeat timer writes to streams that have had no frame for a while; streams end at different ages.
"""

import asyncio

import pytest

from services.notifier.app import create_app
from services.notifier.settings import Settings
from services.notifier.topics.hub import HEARTBEAT, SLOTS, HeartbeatTimer, Hub
from services.notifier.topics.topic import Connection, Message, Topic
from services.notifier.tuning import Tuning
from shared.clients import heartbeats
from shared.clients.heartbeats import HeartbeatReporter
from shared.contracts.queue import HeartbeatReport, QueueClient
from shared.rpc import ServiceClient
from shared.security.tokens import development_keys
from shared.web.parts import with_settings_of_parts
from tests.notifier.conftest import Start
from tests.notifier.frames import EVENT
from tests.notifier.page import update_line
from tests.notifier.tokens import queue_token, signed_pass
from tests.support.running.services import Neighbours
from tests.support.wait import wait_until


def places(report: HeartbeatReport) -> dict[tuple[str, int], dict[int, list[int]]]:
    return {(event.event_id, event.epoch): event.lanes for event in report.events}


def reports(neighbours: Neighbours) -> list[HeartbeatReport]:
    """All so far."""
    return neighbours.queue.received("/heartbeats", HeartbeatReport)


def reporter(neighbours: Neighbours) -> HeartbeatReporter:
    queue = ServiceClient(neighbours.connections, "http://queue", development_keys("service"), name="queue")
    return HeartbeatReporter(QueueClient(queue), service="test")


async def test_open_streams_are_reported_until_they_close(
    start: Start, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heartbeats, "INTERVAL_MAX_S", 0.2)
    notifier = await start()
    await wait_until(lambda: reports(neighbours))
    assert reports(neighbours)[-1].events == []
    clients = [
        await notifier.listen(token=token)
        for token in (queue_token(7), queue_token(3), queue_token(4, lane=2), signed_pass(9))
    ]
    all_places = {(EVENT, 1): {0: [3, 7], 2: [4]}}
    await wait_until(lambda: places(reports(neighbours)[-1]) == all_places)
    reports_before = len(reports(neighbours))
    await wait_until(lambda: len(reports(neighbours)) > reports_before)
    assert places(reports(neighbours)[-1]) == all_places, "an open stream is in every report"
    await clients[0].close()
    await wait_until(lambda: places(reports(neighbours)[-1]) == {(EVENT, 1): {0: [3], 2: [4]}})
    assert len({report.reporter for report in reports(neighbours)}) == 1


async def test_the_last_report_of_a_process_is_final(neighbours: Neighbours):
    app = create_app(
        with_settings_of_parts(Settings, "notifier")(queue_url="http://queue", redis_url="redis://127.0.0.1:1/0")
    )
    async with app.router.lifespan_context(app):
        await wait_until(lambda: reports(neighbours))
    assert [report.final for report in reports(neighbours)][-1:] == [True]


async def test_a_stream_that_was_open_between_two_reports_is_in_the_next_one(neighbours: Neighbours):
    one = reporter(neighbours)
    one.connect((EVENT, 1, 0, 5))
    one.disconnect((EVENT, 1, 0, 5))
    await one.report()
    await one.report()
    assert [places(report) for report in reports(neighbours)] == [{(EVENT, 1): {0: [5]}}, {}]


async def test_many_events_are_reported_in_several_requests(neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeats, "EVENTS_PER_REPORT_MAX", 3)
    one = reporter(neighbours)
    for n in range(4):
        one.connect((f"e{n}", 1, 0, 5))
    await one.report(final=True)
    assert [(len(report.events), report.final) for report in reports(neighbours)] == [(3, False), (1, True)]


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
