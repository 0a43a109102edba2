"""Open streams count as heartbeats of their places; reports are sent without places too, and a final one at the end."""

from typing import Any

from services.notifier.app import create_app
from services.notifier.settings import Settings
from shared.clients.heartbeats import HeartbeatReporter
from shared.contracts.queue import HeartbeatAnswer, HeartbeatReport
from tests.notifier.conftest import Start
from tests.notifier.fake_services import FakeServices
from tests.notifier.frames import EVENT
from tests.notifier.tokens import queue_token, signed_pass
from tests.support.wait import wait_until


def places(report: HeartbeatReport) -> dict[tuple[str, int], dict[int, list[int]]]:
    return {(event.event_id, event.epoch): event.lanes for event in report.events}


async def test_open_streams_are_reported_until_they_close(start: Start, services: FakeServices):
    notifier = await start()
    await wait_until(lambda: services.reports)
    assert services.reports[-1].events == []
    clients = [
        await notifier.listen(token=token)
        for token in (queue_token(7), queue_token(3), queue_token(4, lane=2), signed_pass(9))
    ]
    all_places = {(EVENT, 1): {0: [3, 7], 2: [4]}}
    await wait_until(lambda: places(services.reports[-1]) == all_places)
    reports_before = len(services.reports)
    await wait_until(lambda: len(services.reports) > reports_before)
    assert places(services.reports[-1]) == all_places, "an open stream is in every report"
    await clients[0].close()
    await wait_until(lambda: places(services.reports[-1]) == {(EVENT, 1): {0: [3], 2: [4]}})
    assert len({report.reporter for report in services.reports}) == 1


async def test_the_last_report_of_a_process_is_final(services: FakeServices):
    app = create_app(Settings(queue_url=f"http://127.0.0.1:{services.port}", redis_url="redis://127.0.0.1:1/0"))
    async with app.router.lifespan_context(app):
        await wait_until(lambda: services.reports)
    assert [report.final for report in services.reports][-1:] == [True]


class FakeQueueClient:
    def __init__(self) -> None:
        self.reports: list[HeartbeatReport] = []

    async def report_heartbeats(self, report: HeartbeatReport) -> HeartbeatAnswer:
        self.reports.append(report)
        return HeartbeatAnswer(report_again_s=1)


async def test_a_stream_that_was_open_between_two_reports_is_in_the_next_one():
    queue: Any = FakeQueueClient()
    heartbeats = HeartbeatReporter(queue, service="test")
    heartbeats.connect((EVENT, 1, 0, 5))
    heartbeats.disconnect((EVENT, 1, 0, 5))
    await heartbeats.report()
    await heartbeats.report()
    assert [places(report) for report in queue.reports] == [{(EVENT, 1): {0: [5]}}, {}]


async def test_many_events_are_reported_in_several_requests():
    queue: Any = FakeQueueClient()
    heartbeats = HeartbeatReporter(queue, service="test")
    for n in range(1001):
        heartbeats.connect((f"e{n}", 1, 0, 5))
    await heartbeats.report(final=True)
    assert [(len(report.events), report.final) for report in queue.reports] == [(1000, False), (1, True)]
