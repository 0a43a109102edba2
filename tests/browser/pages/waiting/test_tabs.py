"""Several tabs of one fan: one stream and one poll for all of them, and none is out of date."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.recorded.site import DONE, Asked, RecordedSite
from tests.browser.states import frame, place
from tests.browser.steps import expect_connection
from tests.support.wait import wait_until

QUEUE = "/events/floor/queue"
SETTLED_MS, WATCHED_MS = 1_200, 2_500


@pytest.fixture
def line(site: RecordedSite) -> RecordedSite:
    """An event whose line can be joined and left, and whose page polls each second."""

    def joined(asked: Asked) -> Any:
        site.answers[f"GET {QUEUE}/status"] = place("waiting", join_seq=7, poll_after_ms=1_000)
        return site.answers["joined"]

    joined_answer = site.answers["POST /events/hall/queue"]
    site.answers |= {
        "joined": joined_answer | {"status": "waiting", "join_seq": 7, "poll_after_ms": 1_000},
        f"POST {QUEUE}": joined, f"DELETE {QUEUE}": DONE,
    }  # fmt: skip
    return site


async def join(page: Any, site: RecordedSite) -> None:
    async with page.expect_request("**/queue/status"):  # the script is at work
        await page.goto(f"{site.url}/e/floor")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible()


async def two_tabs(page: Any, site: RecordedSite) -> Any:
    """The first tab leads; the second is open beside it."""
    await join(page, site)
    await expect_connection(page, "live")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator("#waiting")).to_be_visible()
    await expect_connection(other, "live")
    return other


def told(site: RecordedSite, message: str) -> None:
    site.send("line", frame("open", message=message))


def streams(site: RecordedSite) -> int:
    """How many streams were ever asked for."""
    return sum(asked.path.endswith("/updates") for asked in site.asked)


async def test_two_tabs_have_one_stream_and_both_are_live(page: Any, line: RecordedSite) -> None:
    other = await two_tabs(page, line)
    told(line, "Doors at eight")
    for tab in (page, other):
        await expect(tab.locator("#notice")).to_have_text("Doors at eight")
    assert streams(line) == 1


@pytest.mark.proof
async def test_one_tab_polls_for_both(page: Any, line: RecordedSite) -> None:
    polls: dict[str, int] = {"first": 0, "second": 0}
    other = await two_tabs(page, line)
    await page.wait_for_timeout(SETTLED_MS)
    for name, tab in (("first", page), ("second", other)):
        tab.on(
            "request", lambda request, name=name: polls.update({name: polls[name] + request.url.endswith("/status")})
        )
    await page.wait_for_timeout(WATCHED_MS)
    assert polls["first"] > 0
    assert polls["second"] == 0


async def test_the_other_tab_takes_over_when_the_leading_one_is_closed(page: Any, line: RecordedSite) -> None:
    other = await two_tabs(page, line)
    before = streams(line)
    await page.goto("about:blank")
    await expect_connection(other, "live")
    await wait_until(lambda: streams(line) > before)
    await other.wait_for_timeout(100)
    told(line, "Doors at nine")
    await expect(other.locator("#notice")).to_have_text("Doors at nine")


async def test_leaving_in_one_tab_is_leaving_in_all(page: Any, line: RecordedSite) -> None:
    other = await two_tabs(page, line)
    await page.locator("#leave").click()
    for tab in (page, other):
        await expect(tab.locator("#ended-title")).to_have_text("You left the line")


async def test_joining_in_one_tab_is_joining_in_all(page: Any, line: RecordedSite) -> None:
    other = await page.context.new_page()
    await other.goto(f"{line.url}/e/floor")
    await expect(other.locator("#join")).to_be_visible()
    await join(page, line)
    await expect(other.locator("#waiting")).to_be_visible()
    assert await other.locator("#join-seq").inner_text() == await page.locator("#join-seq").inner_text() == "7"


async def test_without_locks_each_tab_has_its_own_stream(page: Any, line: RecordedSite) -> None:
    await page.context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
    other = await two_tabs(page, line)
    told(line, "Doors at ten")
    for tab in (page, other):
        await expect(tab.locator("#notice")).to_have_text("Doors at ten")
    assert streams(line) == 2
