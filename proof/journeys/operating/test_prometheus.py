"""A real Prometheus beside the suite, in one process and in three: its sums equal what the fans
did, and alarms fire from faults, reach their route and end.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.running.fans import fan_of
from tests.support.running.prometheus import Prometheus, prometheus_beside
from tests.support.running.suite import RunningSuite, bearer, running_suite
from tests.support.wait import wait_until
from tests.tools.test_boards import EXPRESSIONS

pytestmark = pytest.mark.journey
FANS = 12
SUMS = {
    'gateway_joins_total{outcome="joined"}': FANS,
    "queue_joined_total": FANS,
    "queue_called_total": FANS,
    "queue_wait_seconds_count": FANS,
    'inventory_holds_total{outcome="held"}': FANS,
    'orders_orders_total{status="confirmed"}': FANS,
    'onsale_http_request_seconds_count{route="/orders",method="POST",status="202"}': FANS,
    "onsale_http_failures_total": 0,
    "notifier_streams_opened_total": FANS,
}
PROCESSES = 3


@pytest.fixture(scope="module", params=[1, pytest.param(PROCESSES, marks=pytest.mark.proof)])
def mode(request: pytest.FixtureRequest) -> Iterator[tuple[RunningSuite, int]]:
    if request.param == 1:
        yield request.getfixturevalue("suite"), 1
        return
    with running_suite(processes=request.param) as running:
        yield running, request.param


async def test_prometheus_sums_what_the_fans_did(mode: tuple[RunningSuite, int], tmp_path: Path) -> None:
    suite, processes = mode
    event_id = await suite.open_event()
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=processes) as prometheus,
        suite.browser() as browser,
    ):
        before = {name: await prometheus.value(f"sum({name})") for name in SUMS}

        async def buys(number: int) -> None:
            fan = await fan_of(browser, event_id).come_in()
            async with browser.stream(
                "GET", f"/events/{fan.event_id}/sections/updates", headers=bearer(fan.queue_token)
            ) as stream:
                assert stream.status_code == 200
                await anext(stream.aiter_raw())
            order = await fan.buy(await fan.hold({"seats": [f"A-{1 + number // 10}-{1 + number % 10}"]}))
            assert order["status"] == "confirmed"

        await asyncio.gather(*map(buys, range(FANS)))
        for name, expected in SUMS.items():
            is_counted = partial(prometheus.is_value, f"sum({name})", before[name] + expected)
            await wait_until(is_counted, timeout_s=20, interval_s=0.2)
        assert (await browser.get("/metrics")).status_code == 404, "not for the public"


async def test_every_panel_of_every_board_has_data(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event()
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=1) as prometheus,
        suite.browser() as browser,
    ):
        fan = await fan_of(browser, event_id).come_in()
        await fan.buy(await fan.hold({"seats": ["A-1-1"]}))

        async def without_data() -> list[str]:
            return [title for title, expression in EXPRESSIONS.items() if not await prometheus.series(expression)]

        async def all_have_data() -> bool:
            return await without_data() == []

        try:
            await wait_until(all_have_data, timeout_s=60, interval_s=1)
        except AssertionError:
            raise AssertionError(f"no data: {await without_data()}") from None


async def test_an_alarm_fires_reaches_its_route_and_ends(suite: RunningSuite, tmp_path: Path) -> None:
    """A room that calls nobody pages until it calls again."""
    event_id = await suite.open_event(room={"rate_per_s": 0})
    async with (
        prometheus_beside(suite.data_dir, tmp_path, processes=1) as prometheus,
        suite.browser() as browser, suite.operator() as operator,
    ):  # fmt: skip
        await asyncio.gather(*(fan_of(browser, event_id).join() for _ in range(110)))
        await reaches(prometheus, "pager", "LineStandsStill", "firing")
        patch = {"rate_per_s": 1000, "reason": "test"}
        answer = await operator.patch(f"/admin/events/{event_id}/room", json=patch)
        assert answer.is_success, answer.text
        await reaches(prometheus, "pager", "LineStandsStill", "resolved")
        assert "LineStandsStill" not in dict(prometheus.received["chat"])


async def reaches(prometheus: Prometheus, receiver: str, alarm: str, status: str) -> None:
    await wait_until(lambda: (alarm, status) in prometheus.received[receiver], timeout_s=90, interval_s=0.2)
