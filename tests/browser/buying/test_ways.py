"""Whole ways through a running suite, from the door to the tickets: by clicks, without scripts, by `/onsale.js`;
`tests/browser/pages` tries each page by itself.
"""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.hall_steps import SECTIONS, another_fan, cursor, expect_cursor, pick_two_by_touch
from tests.browser.plain_steps import come_in, expect_face, expect_held, expect_tickets, join, on_sale
from tests.browser.plain_steps import pay as pay_without_scripts
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    WaitingEvent,
    enter,
    enter_from_catalogue,
    expect_confirmed,
    hold,
    hold_and_pay,
    pay,
    put_on_sale,
    select_ga_ticket,
)
from tests.support.browser import NewPage
from tests.support.running.suite import RunningSuite

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 5000}


async def test_seats_on_the_map_with_a_reload_at_each_step(page: Any, suite: RunningSuite) -> None:
    """Nothing is lost and nothing is bought twice; what another fan holds is seen."""
    event_id = await put_on_sale(suite, room={"max_active": 0}, sections=SECTIONS)
    await page.goto(f"{suite.url}/e/{event_id}")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.reload()
    await expect(page.locator("#join-seq")).to_have_text("1")
    async with suite.operator() as admin:
        await admin.patch(f"/admin/events/{event_id}/room", json={"max_active": 10, "reason": "test"})
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.reload()
    await expect(page.locator("#hall")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    picked = await pick_two_by_touch(page)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": ["A-1-1"]})
        await cursor(page).focus()
        await page.keyboard.press("Home")
        await expect_cursor(page, "Row 1, seat 1,", "in somebody's basket$")
    await hold(page)
    await page.reload()
    await expect(page.locator("#held-tickets li span")).to_have_text(list(picked), timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#held-hall circle")).to_have_count(2)
    await pay(page, "slow")
    await page.reload()
    await expect(page.locator("#order")).to_have_attribute("data-face", "processing")
    await expect_confirmed(page)
    await page.reload()
    await expect(page.locator("#tickets li")).to_have_count(2)
    await page.go_back()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def put_priced_on_sale(suite: RunningSuite) -> str:
    """An open event with fees and taxes; the code EARLY takes 20 % off."""
    event_id = await put_on_sale(
        suite, sections=[FLOOR],
        fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 150},
              {"name": "Order fee", "per": "order", "percent": "2.5"}],
        taxes=[{"name": "VAT", "percent": 19}],
    )  # fmt: skip
    async with suite.operator() as admin:
        code = await admin.put(f"/admin/orders/events/{event_id}/promo-codes/EARLY", json={"percent": 20})
        assert code.is_success
    return event_id


async def test_general_admission_with_every_fee_a_promo_code_and_a_second_card(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_priced_on_sale(suite)}")
    await expect(page.locator("#event-from")).to_have_text("from €52.75")
    await enter(page)
    await select_ga_ticket(page)
    await expect(page.locator("#basket-total")).to_have_text("€52.75")
    await hold(page)
    await page.locator("#promo").fill("early")
    await page.locator("#promo-apply").click()
    await expect(page.locator("#held-total")).to_have_text("€42.50")
    lines = await page.locator("#bill li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "Tickets €50.00", "Promo code EARLY (20 %) -€10.00", "Booking fee €1.50", "Order fee (2.5 %) €1.00",
        "Includes VAT (19 %) €6.79",
    ]  # fmt: skip
    await pay(page, "decline")
    await expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#method").select_option("ok")
    await page.locator("#pay-again").click()
    await expect_confirmed(page)
    await expect(page.locator("#total")).to_have_text("€42.50")
    codes = page.get_by_alt_text(re.compile("to show at the door"))
    await expect(codes).to_have_count(1)
    await expect(codes.first).to_have_js_property("complete", True)
    assert await codes.first.evaluate("image => image.naturalWidth") > 0
    await open_by_mailed_link(page, suite)


async def open_by_mailed_link(page: Any, suite: RunningSuite) -> None:
    """Opens the order in a browser without its cookie, by the link that a mail contains."""
    reference = await page.locator("#reference").inner_text()
    cookies = {cookie["name"]: cookie["value"] for cookie in await page.context.cookies()}
    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(f"{suite.url}/o/{reference}#key={cookies[f'onsale_order_{reference}']}")
    await expect_confirmed(page)
    assert "#" not in page.url
    await page.reload()
    await expect(page.locator("#reference")).to_have_text(reference)


async def test_the_last_ticket_is_paid_on_the_providers_page_and_then_it_is_sold_out(
    page: Any, new_page: NewPage, suite: RunningSuite
) -> None:
    event_id = await put_on_sale(suite, sections=[FLOOR | {"capacity": 1}])
    await page.goto(f"{suite.url}/e/{event_id}")
    late = await new_page()
    await late.goto(f"{suite.url}/e/{event_id}")
    await expect(late.locator("#join")).to_be_visible()
    await enter(page)
    await page.locator("#best-quantity").select_option("5")
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_contain_text("of these tickets")
    await select_ga_ticket(page)
    await hold_and_pay(page, "redirect")
    order_url = page.url
    await page.locator("#act").click()
    await page.get_by_role("button", name="Pay").click()
    await page.wait_for_url(order_url)
    await expect_confirmed(page)
    await expect(late.locator("#lobby-title")).to_have_text("Sold out", timeout=CALL_TIMEOUT_MS)
    await expect(late.locator("#join")).to_be_hidden()
    await expect(late.locator("#section-GA1 .left")).to_have_text("Sold out")


FLOOR_ONLY = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}]


async def buy(page: Any) -> str:
    """Buys one ticket; returns the order's reference."""
    await select_ga_ticket(page)
    await hold(page)
    await pay(page)
    await expect_confirmed(page)
    return str(page.url.rsplit("/", 1)[1])


async def test_a_browser_lists_its_orders_and_each_has_a_calendar_file(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await buy(page)
    event_id = await put_on_sale(suite, name="Second Night", venue="Polar Arena", sections=FLOOR_ONLY)
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    reference = await buy(page)
    async with page.expect_download() as download:
        await page.locator("#calendar").click()
    assert "SUMMARY;LANGUAGE=en:Second Night" in (await (await download.value).path()).read_text()
    await page.get_by_role("link", name="Your orders").first.click()
    entries = page.locator("#orders a")
    await expect(entries).to_have_count(2)
    await expect(entries.nth(0)).to_contain_text(f"confirmed · €30.00 · {reference}")
    await entries.nth(1).click()
    await expect(page.locator("#order-event")).to_have_text("Northern Lights Live")


async def test_a_browser_solves_the_challenge_and_joins(page: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 400_000, "most_hashes": 400_000}
    event_id = await suite.open_event(room={"rate_per_s": 0, "friction": rules})
    await page.goto(f"{suite.url}/e/{event_id}")
    announcements = await page.evaluate_handle("""() => {
        const texts = [];
        new MutationObserver(() => texts.push(document.getElementById('announcer').textContent))
          .observe(document.getElementById('announcer'), { childList: true, characterData: true, subtree: true });
        return texts;
    }""")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=30_000)
    await expect(page.locator("#join-seq")).to_have_text("1")
    await expect(page.locator("#proof")).to_be_hidden()
    assert any("keeps robots out" in text for text in await announcements.json_value())
    await page.reload()
    await expect(page.locator("#join-seq")).to_have_text("1")


async def test_a_fan_buys_seats_from_the_list_with_a_second_card(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await plain.locator("#ga-GA1").select_option("3")
    await plain.locator("form:has(#ga-GA1) .primary").click()
    await expect_held(plain, 1)
    await expect(plain.locator(".tickets-held li")).to_have_text("3 × Floor")
    await plain.get_by_role("button", name="Give the tickets back").click()
    await plain.locator("a[href*='section=A']").click()
    for seat in ("A-2-7", "A-2-8"):
        await plain.locator(f"input[value={seat}]").check()
    await plain.get_by_role("button", name="Hold these tickets").click()
    await expect_held(plain, 2)
    await expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row 2, seat 7")
    await plain.get_by_role("button", name="I need more time").click()
    await expect_held(plain, 2)
    await pay_without_scripts(plain, "sandbox:decline")
    await expect_face(plain, "declined")
    order_url = plain.url
    await plain.locator("#plain-method").select_option("sandbox:redirect")
    await plain.get_by_role("button", name="Try the payment again").click()
    await expect_face(plain, "act")
    await plain.get_by_role("link", name="Continue to the payment page").click()
    await plain.get_by_role("button", name="Pay").click()
    await plain.wait_for_url(re.compile(re.escape(order_url)))
    await expect_tickets(plain, suite)


PAGE = Path(__file__).parents[3] / "docs" / "use" / "client-libraries.md"


async def shops_page(page: Any, address: str, body: str = "") -> None:
    """Opens a page of a shop at this address."""
    await page.route(
        address, lambda route: route.fulfill(body=f"<!doctype html><title>Shop</title>{body}", content_type="text/html")
    )
    await page.goto(address)


async def test_the_example_of_the_documents_buys_on_the_suites_site(page: Any, suite: RunningSuite) -> None:
    [example] = re.findall(r"```html\n(.*?)```", PAGE.read_text(), re.S)
    event_id = await put_on_sale(suite, sections=FLOOR_ONLY)
    await shops_page(page, f"{suite.url}/shop.html", example.replace("arena-2026", event_id))
    await expect(page.locator("#now")).to_have_text("confirmed", timeout=CALL_TIMEOUT_MS)


@pytest.fixture
def other_site(tmp_path: Path) -> Iterator[str]:
    """The address of an empty page on another origin."""
    (tmp_path / "index.html").write_text("<!doctype html><title>Shop</title>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


async def test_another_site_may_load_the_client_and_not_ask_the_api(
    chromium: Any, event: WaitingEvent, other_site: str
) -> None:
    page = await chromium.new_page()
    await page.goto(other_site)
    refused = """async ([suite, event]) => {
      const { Client, Problem } = await import(`${suite}/onsale.js`);
      const problem = await new Client(suite).ask("GET", `/events/${event}/queue`, { patience: 0 }).catch((one) => one);
      const open = await fetch(`${suite}/e/${event}/button.json`);
      return [open.status, problem instanceof Problem, problem.status];
    }"""
    assert await page.evaluate(refused, [event.suite.url, event.event_id]) == [200, True, 0]
    await page.close()
