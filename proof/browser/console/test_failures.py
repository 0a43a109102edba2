"""What the screen shows while parts are silent or the console is gone, and how soon."""

import signal
import time
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from tests.browser.console.conftest import Open, figure, violations
from tests.support.engines.tcp_proxy import Mode, TcpProxy
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SECTIONS = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000}]
WITHIN_S = 3.0
SLACK_S = 2.5  # a figure is heard each second, and a loaded machine is late
AGAIN_MS = 20_000


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "failing_parts") as suite:
        yield suite


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_figures_of_a_silent_part_grey_within_three_seconds_and_stay_readable(
    parts: SuiteOfParts, open_page: Open, scheme: str
) -> None:
    event_id = await parts.open_event(sections=SECTIONS)
    page = await open_page(parts, f"events/{event_id}", scheme=scheme)
    inventory = parts.programs["inventory"]
    sold, waiting = page.locator("[data-tile=Sold]"), page.locator("[data-tile=Waiting]")
    await expect(sold).not_to_contain_text("not heard")
    inventory.send(signal.SIGSTOP)
    try:
        await expect(sold).to_contain_text("inventory not heard for", timeout=(WITHIN_S + SLACK_S) * 1000)
        assert "stale" in (await sold.get_attribute("class") or "").split()
        await expect(waiting).not_to_contain_text("not heard")
        assert await violations(page) == []
    finally:
        inventory.send(signal.SIGCONT)
    await expect(sold).not_to_contain_text("not heard", timeout=AGAIN_MS)


async def test_after_the_console_was_killed_the_screen_goes_on_by_itself(parts: SuiteOfParts, open_page: Open) -> None:
    event_id = await parts.open_event(sections=SECTIONS)
    page = await open_page(parts, f"events/{event_id}")
    async with parts.browser() as browser:
        await parts.restart("console", signal.SIGKILL)
        await (await fan_of(browser, event_id).come_in()).hold({"ga": [{"section_id": "GA", "quantity": 4}]})
        await wait_until_it_answers(parts)
        answers_s = time.monotonic()
        await expect(page.locator("[data-age]")).to_contain_text("s old", timeout=AGAIN_MS)
        assert time.monotonic() - answers_s < WITHIN_S
        await expect(page.locator("[data-section=GA] td.num").nth(1)).to_have_text("4", timeout=AGAIN_MS)
    await expect(figure(page, "Sold")).to_have_text("0 %")


@pytest.mark.parametrize("fault", ["resets", "swallows"])
async def test_a_stream_that_is_cut_or_goes_silent_is_opened_again(
    suite: RunningSuite, open_page: Open, fault: Mode
) -> None:
    with TcpProxy(suite.url) as proxy:
        page = await open_page(suite, "events/arena-2026", url=proxy.url)
        proxy.set_mode(fault)
        await expect(page.locator("[data-age]")).to_contain_text("connection lost, figures from", timeout=10_000)
        await expect(page.locator("[data-tile=Waiting]")).to_contain_text("console not heard for", timeout=10_000)
        proxy.set_mode("resets")
        proxy.set_mode("passes")
        again_s = time.monotonic()
        await expect(page.locator("[data-age]")).to_contain_text("s old", timeout=AGAIN_MS)
        assert time.monotonic() - again_s < WITHIN_S + SLACK_S


async def wait_until_it_answers(suite: RunningSuite) -> None:
    async with suite.operator() as operator:

        async def answers() -> bool:
            return (await operator.get("/console/api/events")).status_code == 200

        await wait_until(answers, timeout_s=20, interval_s=0.1)
