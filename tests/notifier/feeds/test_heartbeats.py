"""Open streams are signs of life: reported with or without news, and with a goodbye at the end."""

from typing import Any

from services.notifier.heartbeats import Heartbeats
from shared.contracts.queue import LifeAnswer, LifeReport
from shared.web.problems import Unavailable
from tests.notifier.conftest import EVENT, Neighbours, Start, admitted, fan
from tests.support.wait import wait_until


def places(report: LifeReport) -> dict[tuple[str, int], dict[int, list[int]]]:
    return {(signs.event_id, signs.epoch): signs.lanes for signs in report.events}


async def test_open_streams_are_reported_until_they_close(start: Start, neighbours: Neighbours):
    notifier = await start()
    await wait_until(lambda: neighbours.reports)
    assert neighbours.reports[-1].events == []
    ears = [await notifier.listen(token=token) for token in (fan(7), fan(3), fan(4, lane=2), admitted(9))]
    everyone = {(EVENT, 1): {0: [3, 7], 2: [4]}}
    await wait_until(lambda: places(neighbours.reports[-1]) == everyone)
    known = len(neighbours.reports)
    await wait_until(lambda: len(neighbours.reports) > known)
    assert places(neighbours.reports[-1]) == everyone, "an open stream is a sign of life every time"
    await ears[0].close()
    await wait_until(lambda: places(neighbours.reports[-1]) == {(EVENT, 1): {0: [3], 2: [4]}})
    assert len({report.reporter for report in neighbours.reports}) == 1


async def test_an_ending_process_says_goodbye(neighbours: Neighbours):
    from services.notifier.app import create_app
    from services.notifier.settings import Settings

    app = create_app(Settings(queue_url=f"http://127.0.0.1:{neighbours.port}", redis_url="redis://127.0.0.1:1/0"))
    async with app.router.lifespan_context(app):
        await wait_until(lambda: neighbours.reports)
    assert [report.goodbye for report in neighbours.reports][-1:] == [True]


class Queue:
    def __init__(self) -> None:
        self.reports: list[LifeReport] = []
        self.away = False

    async def report_life(self, report: LifeReport) -> LifeAnswer:
        if self.away:
            raise Unavailable
        self.reports.append(report)
        return LifeAnswer(report_again_s=1)


async def test_what_could_not_be_told_is_told_next_time():
    queue: Any = Queue()
    life = Heartbeats(queue)
    life.begins((EVENT, 1, 0, 5))
    life.ends((EVENT, 1, 0, 5))
    queue.away = True
    try:
        await life.report()
    except Unavailable:
        queue.away = False
    await life.report()
    await life.report()
    assert [places(report) for report in queue.reports] == [{(EVENT, 1): {0: [5]}}, {}]


async def test_many_events_are_told_in_portions():
    queue: Any = Queue()
    life = Heartbeats(queue)
    for n in range(1001):
        life.begins((f"e{n}", 1, 0, 5))
    await life.report(goodbye=True)
    assert [(len(report.events), report.goodbye) for report in queue.reports] == [(1000, False), (1, True)]
