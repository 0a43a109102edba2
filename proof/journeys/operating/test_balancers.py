"""A purchase through nginx and HAProxy with the generated configuration, in front of `onsale up`."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.running.balancers import Kind, balancer_parameters, plan_for_ports, running_balancer
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, no_cookies, problem


@pytest.fixture(params=balancer_parameters())
def balancer_url(request: pytest.FixtureRequest, suite: RunningSuite, tmp_path: Path) -> Iterator[str]:
    """The address of a balancer in front of the suite, whose services all answer on one port."""
    kind: Kind = request.param
    with running_balancer(kind, plan_for_ports(suite.port), tmp_path) as url:
        yield url


async def test_a_fan_buys_through_a_balancer_and_internal_paths_are_not_found(
    suite: RunningSuite, balancer_url: str
) -> None:
    event_id = await suite.open_event()
    async with httpx.AsyncClient(base_url=balancer_url, timeout=20, cookies=no_cookies()) as browser:
        fan = await fan_of(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
        async with browser.stream(
            "GET", f"/events/{fan.event_id}/sections/updates", headers=bearer(fan.queue_token)
        ) as stream:
            first = await anext(stream.aiter_lines())
        assert first
        for path in ("/internal/joins", "/metrics", "/queue/metrics"):
            assert problem(await browser.get(path)) == (404, "not-found")
