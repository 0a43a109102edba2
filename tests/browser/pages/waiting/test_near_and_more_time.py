"""Nearly called, or short of time: the screen stays on, a fan elsewhere is told, whoever needs more time gets it."""

from typing import Any

from playwright.async_api import expect

from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import (
    ADMITTED,
    DECLINED,
    MockedPage,
    frame,
    held,
    in_seconds,
    order,
    place,
    show_admitted,
    show_event,
)  # fmt: skip
from tests.support.wait import wait_until

RECORD_WAKE_LOCKS = """
    window.locks = [];
    Object.defineProperty(navigator, "wakeLock", { value: { request: async (kind) => {
      const lock = { kind, released: false, release: async () => { lock.released = true; } };
      window.locks.push(lock);
      return lock;
    } } });
"""
RECORD_NOTIFICATIONS = """
    window.told = [];
    window.Notification = class { static permission = "granted"; constructor(text) { window.told.push(text); } };
    window.isHidden = false;
    Object.defineProperty(document, "hidden", { get: () => window.isHidden });
"""
WAKE_AND_HIDE = """() => {
    window.isHidden = false;
    window.dispatchEvent(new Event("online"));
    window.isHidden = true;
}"""
HELD_LOCKS = "window.locks.filter((lock) => !lock.released).length"
FAR = {"position_in_queue": 5_000, "head_seq": 1}
NEAR: dict[str, Any] = {"position_in_queue": 40, "join_seq": 4_361, "head_seq": 4_321}
MINUTE = {"estimated_wait_time": 60, "estimated_wait_low": 45, "estimated_wait_high": 80}
QUEUE = "/events/EVENT/queue"


async def expect_value(page: Any, expression: str, value: Any) -> None:
    """The page's policy allows no `wait_for_function` with a text."""
    for _ in range(50):
        if await page.evaluate(expression) == value:
            return
        await page.wait_for_timeout(100)
    assert await page.evaluate(expression) == value


async def ask_now(mocked: MockedPage) -> None:
    await mocked.page.evaluate("() => window.dispatchEvent(new Event('online'))")


async def test_the_screen_stays_on_when_it_is_nearly_the_fans_turn(page: Any, site: RecordedSite) -> None:
    await page.add_init_script(RECORD_WAKE_LOCKS)
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("open"), place("waiting"))
    await mocked.expect("#waiting")
    await expect(page.locator("#near")).to_be_hidden()
    assert await page.evaluate(HELD_LOCKS) == 0
    mocked.answer({f"GET {QUEUE}/status": place("waiting", **NEAR, **MINUTE)})
    await ask_now(mocked)
    await expect(page.locator("#near")).to_contain_text("It is nearly your turn.")
    await expect_value(page, HELD_LOCKS, 1)
    await expect(page.locator("#screen-on")).to_be_visible()
    mocked.answer({f"GET {QUEUE}/status": place("left")})
    await ask_now(mocked)
    await mocked.expect("#ended")
    await expect_value(page, HELD_LOCKS, 0)


async def test_a_browser_that_does_not_keep_the_screen_on_is_not_said_to(page: Any, site: RecordedSite) -> None:
    await page.add_init_script("Object.defineProperty(navigator, 'wakeLock', { value: undefined })")
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("open"), place("waiting", **NEAR, **MINUTE))
    await mocked.expect("#near")
    await expect(page.locator("#screen-on")).to_be_hidden()


async def test_a_fan_who_is_elsewhere_is_told_once_that_it_is_nearly_their_turn(page: Any, site: RecordedSite) -> None:
    await page.add_init_script(RECORD_NOTIFICATIONS)
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("open"), place("waiting"))
    await mocked.expect("#waiting")
    mocked.answer({f"GET {QUEUE}/status": place("waiting", poll_after_ms=1_000, **NEAR, **MINUTE)})
    await page.evaluate(WAKE_AND_HIDE)
    await expect_value(page, "window.told", ["It is nearly your turn."])
    asked = len(site.asked)
    await wait_until(lambda: len(site.asked) > asked)  # one more poll
    await page.wait_for_timeout(100)
    assert await page.evaluate("window.told") == ["It is nearly your turn."]


async def test_what_is_left_and_at_which_prices_is_told_while_waiting(page: Any, site: RecordedSite) -> None:
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("open"), place("waiting"))
    await expect(page.locator("#left-now")).to_contain_text(" left · €")
    await page.locator(".next summary").click()
    await expect(page.locator(".next li").first).to_contain_text("opens by itself")


async def test_more_time_to_choose(page: Any, site: RecordedSite) -> None:
    mocked = MockedPage(page, site)
    extend = f"POST {QUEUE}/pass/extend"
    longer = ADMITTED | {"expires_at": in_seconds(900)}
    await show_admitted(mocked, {extend: longer}, until_s=100)
    await mocked.click("#more-session")
    await expect(page.locator("#session-clock")).to_contain_text("14:")
    await expect(page.locator("#more-session")).to_be_hidden()
    await expect(page.locator("#choosing-title")).to_be_focused()


async def test_more_time_is_given_once(page: Any, site: RecordedSite) -> None:
    mocked = MockedPage(page, site)
    refused = problem("already-extended", "Extended before.")
    await show_admitted(mocked, {f"POST {QUEUE}/pass/extend": refused}, until_s=100)
    await mocked.click("#more-session")
    await expect(page.locator("#trouble-text")).to_have_text("You were given more time before; that is possible once.")
    await expect(page.locator("#more-session")).to_be_hidden()


async def test_more_time_to_pay_before_and_after_ordering(page: Any, site: RecordedSite) -> None:
    mocked = MockedPage(page, site)
    await held(mocked)
    await expect(page.locator("#more-time")).to_be_visible()
    await order(
        "pending", shows="#retry", progress="your-turn", attempt=DECLINED, expires_at=in_seconds(100), extended=False
    )(mocked)
    [reference] = page.url.split("/o/")[1:]
    body = mocked.answered(f"GET /orders/{reference}") | {"expires_at": in_seconds(600), "extended": True}
    mocked.answer({f"POST /orders/{reference}/extend": body, f"GET /orders/{reference}": body})
    await mocked.click("#more-time")
    await expect(page.locator("#expiry-clock")).to_contain_text("9:")
    await expect(page.locator("#more-time")).to_be_hidden()
