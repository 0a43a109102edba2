"""The journey through each balancer, as generated, in front of the suite as a laptop runs it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.running.balancers import Kind, balancing, in_front_of, parameters
from tests.support.running.suite import Fan, RunningSuite, bearer, no_cookies, problem


@pytest.fixture(params=parameters())
def balanced(request: pytest.FixtureRequest, suite: RunningSuite, tmp_path: Path) -> Iterator[str]:
    """A balancer in front of the suite; here every service answers on the suite's one port."""
    kind: Kind = request.param
    with balancing(kind, in_front_of(suite.port), tmp_path) as url:
        yield url


async def test_a_balancer_carries_the_journey(suite: RunningSuite, balanced: str) -> None:
    event_id = await suite.open_event()
    async with httpx.AsyncClient(base_url=balanced, timeout=20, cookies=no_cookies()) as browser:
        fan = await Fan(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold(seats=["A-1-1"])))["status"] == "confirmed"
        async with browser.stream("GET", f"{fan.path}/sections/updates", headers=bearer(fan.token)) as stream:
            first = await anext(stream.aiter_lines())
        assert first
        for path in ("/internal/joins", "/metrics", "/queue/metrics"):
            assert problem(await browser.get(path)) == (404, "not-found")
