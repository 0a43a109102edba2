"""In the middle of the way without scripts: reloads, double presses, scripts switched on and off, a wait to join."""

from typing import Any

import httpx
from playwright.async_api import expect

from tests.browser.plain_steps import (
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
from tests.browser.steps import CALL_TIMEOUT_MS
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def with_scripts(plain: Any, chromium: Any) -> Any:
    """The same browser after its scripts were switched on: a page with the same cookies."""
    context = await chromium.new_context(viewport={"width": 390, "height": 844}, locale="en-GB")
    await context.add_cookies(await plain.context.cookies())
    return await context.new_page()


async def test_a_reload_repeats_the_page_and_never_the_request(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await plain.reload()
    await come_in(plain)
    await plain.reload()
    await hold_best(plain)
    await plain.reload()
    await expect_held(plain, 2)
    await pay(plain)
    await plain.reload()
    await expect_tickets(plain, suite)
    await plain.go_back()

    async def is_over() -> bool:
        await plain.goto(f"{suite.url}/e/{event_id}")
        return bool(await plain.locator("#plain-title").text_content() == "You have your tickets")

    await wait_until(is_over)
    async with suite.operator() as admin:
        orders = (await admin.get("/admin/orders", params={"event_id": event_id})).raise_for_status().json()["orders"]
    assert len(orders) == 1


async def test_a_double_press_takes_and_pays_once(plain: Any, suite: RunningSuite) -> None:
    """The second press sends the same form once more: as from a tab that does not know the first one's answer."""
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    key = await plain.locator("form:has(#plain-quantity) input[name=key]").get_attribute("value")
    best = {"quantity": "2", "where": "", "key": key}
    pages = [await post(plain, suite, f"/events/{event_id}/reservations", best) for _ in range(3)]
    assert {page.url for page in pages} == {f"{suite.url}/e/{event_id}"}
    await plain.reload()
    await expect_held(plain, 2)
    fields = {
        field: await plain.locator(f"form[action='/orders'] input[name={field}]").get_attribute("value")
        for field in ("event_id", "reservation_id", "expected_total_minor", "currency", "promo_code")
    }
    order = {**fields, "name": "Ada", "email": "ada@example.org", "method": "sandbox:ok"}
    [address] = {(await post(plain, suite, "/orders", order)).url for _ in range(3)}
    await plain.goto(address)
    await expect_tickets(plain, suite)
    async with suite.operator() as admin:
        [found] = (await admin.get("/admin/orders", params={"event_id": event_id})).raise_for_status().json()["orders"]
    assert found["charged_minor"] == found["total_minor"]


async def post(page: Any, suite: RunningSuite, path: str, fields: dict[str, Any], **headers: str) -> Any:
    return await page.request.post(f"{suite.url}{path}", form=fields, headers={"origin": suite.url, **headers})


async def test_a_form_of_another_site_takes_holds_and_pays_nothing(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    paths = {
        f"/events/{event_id}/queue": {"_method": "DELETE"}, f"/events/{event_id}/reservations": {"quantity": "2"},
        "/orders": {"reservation_id": "a" * 32, "event_id": event_id},
    }  # fmt: skip
    for path, fields in paths.items():
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = await post(plain, suite, path, fields, **headers)
            assert (answer.status, (await answer.json())["type"]) == (403, "/problems/foreign-origin"), path
    await plain.reload()
    await expect(plain.locator("#plain-quantity")).to_be_visible()
    await expect(plain.locator("#plain-name")).to_have_count(0)


async def test_scripts_switched_on_find_the_hold_that_a_form_made(
    plain: Any, chromium: Any, suite: RunningSuite
) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain)
    page = await with_scripts(plain, chromium)
    await page.goto(f"{suite.url}/e/{event_id}")
    await expect(page.locator("#held")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#held-tickets li")).to_have_count(2)
    await expect(page.locator("#plain-name")).to_have_count(0)
    assert "onsale_plain" not in {cookie["name"] for cookie in await page.context.cookies()}
    await page.context.close()


async def test_scripts_switched_off_go_on_with_the_hold_that_they_made(chromium: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    scripted = await chromium.new_context(locale="en-GB")
    page = await scripted.new_page()
    await open_lobby(page, suite, event_id)
    await page.locator("#join").click()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#best-find").click()
    await expect(page.locator("#held")).to_be_visible()
    context = await chromium.new_context(java_script_enabled=False)
    await context.add_cookies(await scripted.cookies())
    await scripted.close()
    plain = await context.new_page()
    await plain.goto(f"{suite.url}/e/{event_id}")
    await plain.get_by_role("link", name="Go on without JavaScript").click()
    await expect_held(plain, 2)
    await pay(plain)
    await expect_face(plain, "confirmed")
    await context.close()


async def test_the_position_stands_in_the_document_and_does_not_move_when_scripts_take_over(
    chromium: Any, suite: RunningSuite
) -> None:
    event_id = await on_sale(suite, room={"max_active": 0})
    context = await chromium.new_context(viewport={"width": 390, "height": 844}, locale="en-GB")
    page = await context.new_page()
    await open_lobby(page, suite, event_id)
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible()
    await page.add_init_script("""
        window.shifts = [];
        new PerformanceObserver((list) => list.getEntries().forEach((one) => shifts.push(one.value)))
          .observe({ type: "layout-shift", buffered: true });
    """)
    cookies = {cookie["name"]: cookie["value"] for cookie in await context.cookies()}
    async with httpx.AsyncClient(cookies=cookies) as client:
        document = (await client.get(page.url)).text
    assert '<p id="position" class="position">1</p>' in document
    for path in (f"/e/{event_id}", f"/e/{event_id}"):
        await page.goto(f"{suite.url}{path}", wait_until="networkidle")
        await expect(page.locator("#position")).to_have_text("1")
        assert sum(await page.evaluate("shifts")) < 0.1
    await context.close()


async def test_a_wait_takes_the_place_of_the_proof(plain: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 60_000, "most_hashes": 60_000}
    await join(plain, suite, await on_sale(suite, room={"max_active": 0, "friction": rules}))
    await expect(plain.locator("#plain-title")).to_have_text("A short wait before you join")
    words = plain.locator("#plain-title + p")  # a search by text passes over `noscript`
    await expect(words).to_have_text("The wait is over. Press the button below.", timeout=10_000)
    await plain.locator("#join").click()
    await expect(plain.locator("#join-seq")).to_have_text("1")


async def test_refreshing_can_be_stopped(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, room={"max_active": 0})
    await join(plain, suite, event_id)
    loads: list[str] = []
    plain.on("request", lambda request: loads.append(request.url) if request.is_navigation_request() else None)
    await wait_until(lambda: loads, timeout_s=20)
    await plain.get_by_role("link", name="Stop refreshing").click()
    await expect(plain.get_by_role("link", name="Refresh by itself again")).to_be_visible()
    assert await plain.locator("meta[http-equiv]").count() == 0
