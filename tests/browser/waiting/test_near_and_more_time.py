"""Nearly called, or short of time: the screen stays on, a fan elsewhere is told, whoever needs more time gets it."""

from typing import Any

from playwright import sync_api

from tests.browser.states import (
    MockedPage,
    frame,
    held,
    in_seconds,
    order,
    place,
    show_admitted,
    show_event,
)  # fmt: skip
from tests.browser.steps import enter, put_on_sale
from tests.support.running.suite import RunningSuite

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


def expect_value(page: Any, expression: str, value: Any) -> None:
    """The page's policy allows no `wait_for_function` with a text."""
    for _ in range(50):
        if page.evaluate(expression) == value:
            return
        page.wait_for_timeout(100)
    assert page.evaluate(expression) == value


def ask_now(mocked: MockedPage) -> None:
    mocked.page.evaluate("() => window.dispatchEvent(new Event('online'))")


def test_the_screen_stays_on_when_it_is_nearly_the_fans_turn(page: Any, suite: RunningSuite) -> None:
    page.add_init_script(RECORD_WAKE_LOCKS)
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("open"), place("waiting"))
    mocked.expect("#waiting")
    sync_api.expect(page.locator("#near")).to_be_hidden()
    assert page.evaluate(HELD_LOCKS) == 0
    mocked.answer({f"GET {QUEUE}/status": place("waiting", **NEAR, **MINUTE)})
    ask_now(mocked)
    sync_api.expect(page.locator("#near")).to_contain_text("It is nearly your turn.")
    expect_value(page, HELD_LOCKS, 1)
    sync_api.expect(page.locator("#screen-on")).to_be_visible()
    mocked.answer({f"GET {QUEUE}/status": place("left")})
    ask_now(mocked)
    mocked.expect("#ended")
    expect_value(page, HELD_LOCKS, 0)


def test_a_browser_that_does_not_keep_the_screen_on_is_not_said_to(page: Any, suite: RunningSuite) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'wakeLock', { value: undefined })")
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("open"), place("waiting", **NEAR, **MINUTE))
    mocked.expect("#near")
    sync_api.expect(page.locator("#screen-on")).to_be_hidden()


def test_a_fan_who_is_elsewhere_is_told_once_that_it_is_nearly_their_turn(page: Any, suite: RunningSuite) -> None:
    page.add_init_script(RECORD_NOTIFICATIONS)
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("open"), place("waiting"))
    mocked.expect("#waiting")
    mocked.answer({f"GET {QUEUE}/status": place("waiting", poll_after_ms=1_000, **NEAR, **MINUTE)})
    page.evaluate(WAKE_AND_HIDE)
    expect_value(page, "window.told", ["It is nearly your turn."])
    page.wait_for_timeout(3_000)  # two more polls
    assert page.evaluate("window.told") == ["It is nearly your turn."]


def test_what_is_left_and_at_which_prices_is_told_while_waiting(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("open"), place("waiting"))
    sync_api.expect(page.locator("#left-now")).to_contain_text(" left · €")
    page.locator(".next summary").click()
    sync_api.expect(page.locator(".next li").first).to_contain_text("opens by itself")


def test_more_time_to_choose(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    extend = f"POST {QUEUE}/pass/extend"
    longer = {"status": "admitted", "checkout_key": "k" * 32, "expires_at": in_seconds(900)}
    show_admitted(mocked, {extend: longer}, until_s=100)
    mocked.click("#more-session")
    sync_api.expect(page.locator("#session-clock")).to_contain_text("14:")
    sync_api.expect(page.locator("#more-session")).to_be_hidden()
    sync_api.expect(page.locator("#choosing-title")).to_be_focused()


def test_more_time_is_given_once(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    refused = {"type": "/problems/already-extended", "title": "Extended before.", "status": 409}
    show_admitted(mocked, {f"POST {QUEUE}/pass/extend": refused}, until_s=100)
    mocked.click("#more-session")
    sync_api.expect(page.locator("#trouble-text")).to_have_text(
        "You were given more time before; that is possible once."
    )
    sync_api.expect(page.locator("#more-session")).to_be_hidden()


def test_more_time_to_pay_before_and_after_ordering(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    held(mocked)
    sync_api.expect(page.locator("#more-time")).to_be_visible()
    declined = {"n": 1, "status": "failed", "reason": "card_declined"}
    order(
        "pending", shows="#retry", progress="your-turn", attempt=declined, expires_at=in_seconds(100), extended=False
    )(mocked)
    [reference] = page.url.split("/o/")[1:]
    body = mocked.answers["GET", f"/orders/{reference}"] | {"expires_at": in_seconds(600), "extended": True}
    mocked.answer({f"POST /orders/{reference}/extend": body, f"GET /orders/{reference}": body})
    mocked.click("#more-time")
    sync_api.expect(page.locator("#expiry-clock")).to_contain_text("9:")
    sync_api.expect(page.locator("#more-time")).to_be_hidden()


def test_a_short_session_lasts_longer_in_the_running_suite(page: Any, suite: RunningSuite) -> None:
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
    event_id = put_on_sale(suite, room={"session_s": 60}, sections=[floor])
    page.goto(f"{suite.url}/e/{event_id}")
    enter(page)
    page.wait_for_timeout(2_500)
    left = page.locator("#session-clock").inner_text()
    page.locator("#more-session").click()
    sync_api.expect(page.locator("#more-session")).to_be_hidden()
    assert page.locator("#session-clock").inner_text() > left
    page.reload()
    sync_api.expect(page.locator("#choosing")).to_be_visible()
