"""Waiting: the connection's true state, the call, the ends of a place, lanes with codes, the operator's message, and a
line that is sold out until tickets come back; several tabs of one fan: one stream and one poll for all of them, and
none is out of date.
"""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import DONE, STREAM, Asked, RecordedSite
from tests.browser.recorded.steps import come_in
from tests.browser.states import NO_PLACE, QUEUE, MockedPage, frame, place, show_event
from tests.browser.steps import expect_connection
from tests.support.wait import wait_until

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


FLOOR_QUEUE = "/events/floor/queue"
SETTLED_MS, WATCHED_MS = 1_200, 2_500


@pytest.fixture
def line(site: RecordedSite) -> RecordedSite:
    """An event whose line can be joined and left, and whose page polls each second."""

    def joined(asked: Asked) -> Any:
        site.answers[f"GET {FLOOR_QUEUE}/status"] = place("waiting", join_seq=7, poll_after_ms=1_000)
        return site.answers["joined"]

    joined_answer = site.answers["POST /events/hall/queue"]
    site.answers |= {
        "joined": joined_answer | {"status": "waiting", "join_seq": 7, "poll_after_ms": 1_000},
        f"POST {FLOOR_QUEUE}": joined, f"DELETE {FLOOR_QUEUE}": DONE,
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
