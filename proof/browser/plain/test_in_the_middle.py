"""In the middle of the way without scripts: reloads, double presses, scripts switched on and off, a wait to join."""

from typing import Any

import httpx
from playwright import sync_api

from tests.browser.plain.plain_steps import (
    come_in,
    expect_face,
    expect_held,
    expect_tickets,
    hold_best,
    join,
    on_sale,
    open_lobby,
    pay,
)
from tests.browser.steps import CALL_TIMEOUT_MS, operator
from tests.support.running.suite import RunningSuite
from tests.support.wait import until


def with_scripts(plain: Any, browser: Any) -> Any:
    """The same browser after its scripts were switched on: a page with the same cookies."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB")
    context.add_cookies(plain.context.cookies())
    return context.new_page()


def test_a_reload_repeats_the_page_and_never_the_request(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    plain.reload()
    come_in(plain)
    plain.reload()
    hold_best(plain)
    plain.reload()
    expect_held(plain, 2)
    pay(plain)
    plain.reload()
    expect_tickets(plain, suite)
    plain.go_back()

    def title_on_return() -> str | None:
        plain.goto(f"{suite.url}/e/{event_id}")
        return plain.locator("#plain-title").text_content()

    until(lambda: title_on_return() == "You have your tickets", what="the line's news of the purchase")
    with operator(suite) as admin:
        orders = admin.get("/admin/orders", params={"event_id": event_id}).raise_for_status().json()["orders"]
    assert len(orders) == 1


def test_a_double_press_takes_and_pays_once(plain: Any, suite: RunningSuite) -> None:
    """The second press sends the same form once more: as from a tab that does not know the first one's answer."""
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    key = plain.locator("form:has(#plain-quantity) input[name=key]").get_attribute("value")
    best = {"quantity": "2", "where": "", "key": key}
    pages = [post(plain, suite, f"/events/{event_id}/reservations", best) for _ in range(3)]
    assert {page.url for page in pages} == {f"{suite.url}/e/{event_id}"}
    plain.reload()
    expect_held(plain, 2)
    fields = {
        field: plain.locator(f"form[action='/orders'] input[name={field}]").get_attribute("value")
        for field in ("event_id", "reservation_id", "expected_total_minor", "currency", "promo_code")
    }
    order = {**fields, "name": "Ada", "email": "ada@example.org", "method": "sandbox:ok"}
    [address] = {post(plain, suite, "/orders", order).url for _ in range(3)}
    plain.goto(address)
    expect_tickets(plain, suite)
    with operator(suite) as admin:
        [found] = admin.get("/admin/orders", params={"event_id": event_id}).raise_for_status().json()["orders"]
    assert found["charged_minor"] == found["total_minor"]


def post(page: Any, suite: RunningSuite, path: str, fields: dict[str, Any], **headers: str) -> Any:
    return page.request.post(f"{suite.url}{path}", form=fields, headers={"origin": suite.url, **headers})


def test_a_form_of_another_site_takes_holds_and_pays_nothing(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    paths = {
        f"/events/{event_id}/queue": {"_method": "DELETE"}, f"/events/{event_id}/reservations": {"quantity": "2"},
        "/orders": {"reservation_id": "a" * 32, "event_id": event_id},
    }  # fmt: skip
    for path, fields in paths.items():
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = post(plain, suite, path, fields, **headers)
            assert (answer.status, answer.json()["type"]) == (403, "/problems/foreign-origin"), path
    plain.reload()
    sync_api.expect(plain.locator("#plain-quantity")).to_be_visible()
    sync_api.expect(plain.locator("#plain-name")).to_have_count(0)


def test_scripts_switched_on_find_the_hold_that_a_form_made(plain: Any, browser: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    hold_best(plain)
    page = with_scripts(plain, browser)
    page.goto(f"{suite.url}/e/{event_id}")
    sync_api.expect(page.locator("#held")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#held-tickets li")).to_have_count(2)
    sync_api.expect(page.locator("#plain-name")).to_have_count(0)
    assert "onsale_plain" not in {cookie["name"] for cookie in page.context.cookies()}
    page.context.close()


def test_scripts_switched_off_go_on_with_the_hold_that_they_made(browser: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite)
    scripted = browser.new_context(locale="en-GB")
    page = scripted.new_page()
    open_lobby(page, suite, event_id)
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    page.locator("#best-find").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    context = browser.new_context(java_script_enabled=False)
    context.add_cookies(scripted.cookies())
    scripted.close()
    plain = context.new_page()
    plain.goto(f"{suite.url}/e/{event_id}")
    plain.get_by_role("link", name="Go on without JavaScript").click()
    expect_held(plain, 2)
    pay(plain)
    expect_face(plain, "confirmed")
    context.close()


def test_the_position_stands_in_the_document_and_does_not_move_when_scripts_take_over(
    browser: Any, suite: RunningSuite
) -> None:
    event_id = on_sale(suite, room={"max_active": 0})
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB")
    page = context.new_page()
    open_lobby(page, suite, event_id)
    page.locator("#join").click()
    sync_api.expect(page.locator("#waiting")).to_be_visible()
    page.add_init_script("""
        window.shifts = [];
        new PerformanceObserver((list) => list.getEntries().forEach((one) => shifts.push(one.value)))
          .observe({ type: "layout-shift", buffered: true });
    """)
    cookies = {cookie["name"]: cookie["value"] for cookie in context.cookies()}
    document = httpx.get(page.url, cookies=cookies).text
    assert '<p id="position" class="position">1</p>' in document
    for path in (f"/e/{event_id}", f"/e/{event_id}"):
        page.goto(f"{suite.url}{path}", wait_until="networkidle")
        sync_api.expect(page.locator("#position")).to_have_text("1")
        assert sum(page.evaluate("shifts")) < 0.1
    context.close()


def test_a_wait_takes_the_place_of_the_proof(plain: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 60_000, "most_hashes": 60_000}
    join(plain, suite, on_sale(suite, room={"max_active": 0, "friction": rules}))
    sync_api.expect(plain.locator("#plain-title")).to_have_text("A short wait before you join")
    words = plain.locator("#plain-title + p")  # a search by text passes over `noscript`
    sync_api.expect(words).to_have_text("The wait is over. Press the button below.", timeout=10_000)
    plain.locator("#join").click()
    sync_api.expect(plain.locator("#join-seq")).to_have_text("1")


def test_refreshing_can_be_stopped(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite, room={"max_active": 0})
    join(plain, suite, event_id)
    loads: list[str] = []
    plain.on("request", lambda request: loads.append(request.url) if request.is_navigation_request() else None)
    until(lambda: plain.wait_for_timeout(200) or loads, what="a refresh", timeout_s=20)
    plain.get_by_role("link", name="Stop refreshing").click()
    sync_api.expect(plain.get_by_role("link", name="Refresh by itself again")).to_be_visible()
    assert plain.locator("meta[http-equiv]").count() == 0
