"""Waiting: the connection's true state, the call, the ends of a place, lanes with codes, the operator's message, and a
line that is sold out until tickets come back.
"""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import STREAM, Asked, RecordedSite
from tests.browser.recorded.steps import come_in
from tests.browser.states import NO_PLACE, QUEUE, MockedPage, frame, place, show_event
from tests.browser.steps import expect_connection

ASKS_WITHIN_MS = 5_000
HIDE = "() => { window.isHidden = true; document.dispatchEvent(new Event('visibilitychange')); }"
SHOW = "() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }"
MOCK_VISIBILITY = """
    window.isHidden = false;
    Object.defineProperty(document, "hidden", { get: () => window.isHidden });
"""


async def wait_in_line(page: Any, site: RecordedSite, *, stream: Any = STREAM) -> MockedPage:
    mocked, streaming = MockedPage(page, site, "hall"), {"GET /events/EVENT/sections/updates": stream}
    await show_event(mocked, frame("open", poll_after_ms=500), place("waiting"), streaming)
    await mocked.expect("#waiting")
    return mocked


async def test_without_a_network_the_page_says_so_and_how_old_its_figures_are(page: Any, site: RecordedSite) -> None:
    await wait_in_line(page, site)
    await expect_connection(page, "live")
    await page.context.set_offline(True)
    await expect_connection(page, "offline")
    await expect(page.locator("#connection-text")).to_contain_text("As of ")
    await expect(page.locator("#line-as-of")).to_be_visible()
    await page.context.set_offline(False)
    await expect_connection(page, "live")
    await expect(page.locator("#line-as-of")).to_be_hidden()


async def test_without_a_stream_the_page_polls(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    mocked = await wait_in_line(page, site, stream=problem("unavailable"))
    await expect_connection(page, "polling")
    mocked.answer({f"GET {QUEUE}": frame("open", message="Doors at eight", poll_after_ms=500)})
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await expect(page.locator("#notice")).to_have_text("Doors at eight")


async def test_far_back_in_a_long_line_the_page_follows_the_public_line_until_it_is_called(
    page: Any, site: RecordedSite
) -> None:
    await page.clock.install()
    long_line = {"heartbeat_after_ms": 3_600_000, "near_places": 1_000, "poll_after_ms": 500}
    mocked = MockedPage(page, site, "hall")
    await show_event(
        mocked, frame("open", **long_line), place("waiting", heartbeat_after_ms=3_000_000),
        {"GET /events/EVENT/sections/updates": problem("unavailable")},
    )  # fmt: skip
    await expect(page.locator("#position")).to_have_text("119,135")
    asked = len(site.bodies("GET /events/hall/queue/status"))
    for head_seq, position in ((23_456, "100,000"), (113_456, "10,000")):
        mocked.answer({f"GET {QUEUE}": frame("open", head_seq=head_seq, seconds_per_place=0.6, **long_line)})
        await page.clock.fast_forward(ASKS_WITHIN_MS)
        await expect(page.locator("#position")).to_have_text(position)
    await expect(page.locator("#estimate")).to_contain_text("about 2 hours")
    assert len(site.bodies("GET /events/hall/queue/status")) == asked, "the line says it all"
    called = site.answers["ready"] | {"join_seq": 123_456, "head_seq": 123_456}
    mocked.answer({
        f"GET {QUEUE}": frame("open", head_seq=122_456, **long_line), f"GET {QUEUE}/status": called,
        f"POST {QUEUE}/pass": site.answers["POST /events/hall/queue/pass"],
    })  # fmt: skip
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await page.clock.fast_forward(2 * ASKS_WITHIN_MS)
    await expect(page.locator("#choosing")).to_be_visible()


async def test_an_interruption_behind_the_stream_is_shown_until_it_ends(page: Any, site: RecordedSite) -> None:
    await wait_in_line(page, site)
    await expect_connection(page, "live")
    site.send("line", frame("open", degraded=True))
    await expect(page.locator("#notice")).to_contain_text("Live updates are interrupted")
    await expect_connection(page, "degraded")
    site.send("line", frame("open"))
    await expect(page.locator("#notice")).to_be_hidden()
    site.send("line", frame("draining"))
    await expect(page.locator("#notice")).to_contain_text("takes nobody new")


async def test_a_called_fan_with_a_hidden_page_claims_on_their_return(page: Any, site: RecordedSite) -> None:
    await page.add_init_script(MOCK_VISIBILITY)
    mocked = await wait_in_line(page, site)
    mocked.answer({f"POST {QUEUE}/pass": site.answers["POST /events/hall/queue/pass"]})
    await page.evaluate("() => window.dispatchEvent(new Event('online'))")
    mocked.answer({f"GET {QUEUE}/status": site.answers["ready"]})
    await page.evaluate(HIDE)
    await expect(page.locator("#called")).to_be_visible()
    await expect(page.locator("#called-window")).to_contain_text("Time to come in:")
    assert site.bodies("POST /events/hall/queue/pass") == [], "the session begins when the fan is back"
    await page.evaluate(SHOW)
    await expect(page.locator("#choosing")).to_be_visible()
    assert len(site.bodies("POST /events/hall/queue/pass")) == 1


@pytest.mark.parametrize(("status", "why", "title"), [
    ("expired", "session", "Your time to choose has run out"), ("expired", "unclaimed", "Your turn has passed"),
    ("left", None, "You left the line"),
])  # fmt: skip
async def test_the_end_of_a_place_is_shown_with_its_reason(
    page: Any, site: RecordedSite, status: str, why: str | None, title: str
) -> None:
    await show_event(MockedPage(page, site), frame("open"), place(status, why=why))
    await expect(page.locator("#ended-title")).to_have_text(title)


async def test_a_lane_opens_for_its_code_and_a_wrong_one_is_told(page: Any, site: RecordedSite) -> None:
    pace = {"seconds_per_place": None, "estimate_changed": None}
    general = {"name": "General", "head_seq": 0, "tail_seq": 0, "code_required": False, **pace}
    lanes = {"0": general, "1": general | {"name": "Club", "code_required": True}}
    mocked = MockedPage(page, site, "hall")
    await show_event(mocked, frame("open", lanes=lanes))
    wrong = problem("code-unknown", "This code opens no lane of this line.")
    joined = site.answers["POST /events/hall/queue"] | {"status": "waiting", "join_seq": 1, "lane": 1}

    def join(asked: Asked) -> Any:
        if asked.body != {"code": "CLUB-7"}:
            return wrong
        mocked.answer({f"GET {QUEUE}/status": place("waiting", join_seq=1)})
        return joined

    mocked.answer({f"POST {QUEUE}": join})
    field = page.get_by_label("Code, if you have one", exact=True)
    await field.fill("WRONG")
    await page.locator("#join").click()
    await expect(page.locator("#code-error")).to_contain_text("opens no lane of this line")
    await field.fill("CLUB-7")
    await field.press("Enter")
    await expect(page.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert "CLUB" not in page.url


async def test_choosing_goes_on_while_the_stream_is_cut(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    site.answers["GET /events/hall/sections/updates"] = problem("unavailable")
    site.change("GET /events/hall/queue", poll_after_ms=500)
    await come_in(page, site)
    stock = site.answers["GET /events/hall/sections"]["sections"]
    left = [each | ({"available_seats": 49} if each["section_id"] == "GA1" else {}) for each in stock]
    site.change("GET /events/hall/sections", sections=left)
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await expect(page.locator("#section-GA1 .left")).to_have_text("49 of 50 left")


# -- sold out ----------------------------------------------------------------------------------------------------------

SOON = {"poll_after_ms": 300}


@pytest.mark.parametrize(("own", "says", "comes_back"), [
    (place("waiting", **SOON), "#ended-text", "#waiting"), (NO_PLACE, "#lobby-text", "#join"),
])  # fmt: skip
async def test_a_sold_out_line_goes_on_when_tickets_come_back(
    page: Any, site: RecordedSite, own: Any, says: str, comes_back: str
) -> None:
    """For a fan in it, and at its door: the page says that some may come back."""
    await page.clock.install()
    mocked, all_events = MockedPage(page, site), page.locator("#ended").get_by_role("link", name="All events")
    await show_event(mocked, frame("sold_out", **SOON), own)
    await expect(page.locator(says)).to_have_text(re.compile("Should some come back"))
    await expect(all_events).to_be_visible(visible=own is not NO_PLACE)
    await expect(page.locator(comes_back)).to_be_hidden()
    mocked.answer({"GET /events/EVENT/queue": frame("open", **SOON)})
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await expect(page.locator(comes_back)).to_be_visible()
