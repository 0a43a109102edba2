"""The whole way in a browser without scripts: join, wait, come in, hold, pay and print, by forms alone; and its pages
are readable: axe finds nothing, contrast is enough in light and dark, and all fits at 320 px.

axe is a script: the browser runs it, but none of ours, and gets documents without the tags of `noscript` and without
their refreshing.

In the middle of the way without scripts: reloads, double presses, scripts switched on and off, a wait to join.
"""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from shared.words.words import LANGUAGES, words
from tests.browser.plain_steps import (
    ROOM,
    SECTIONS,
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
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.steps import CALL_TIMEOUT_MS
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def reload_until_title(page: Any, url: str, title: str) -> None:
    """The line hears of a purchase a moment later."""

    async def has_title() -> bool:
        await page.goto(url)
        return await page.locator("#plain-title").inner_text() == title

    await wait_until(has_title)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_fan_buys_the_best_seats_in_each_language(plain: Any, suite: RunningSuite, language: str) -> None:
    await plain.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain)
    await pay(plain)
    await expect_tickets(plain, suite)
    await expect(plain.locator("#plain-title")).to_have_text(words(language)("order_confirmed"))
    await reload_until_title(plain, f"{suite.url}/e/{event_id}", words(language)("completed_title"))
    await expect(plain.locator(".plain-orders a")).to_have_count(1)


async def test_a_fan_holds_general_admission_gives_it_back_and_holds_seats_from_the_list(
    plain: Any, suite: RunningSuite
) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await plain.locator("#ga-GA1").select_option("3")
    await plain.locator("form:has(#ga-GA1) .primary").click()
    await expect_held(plain, 1)
    await expect(plain.locator(".tickets-held li")).to_have_text("3 × Floor")
    await plain.get_by_role("button", name="Give the tickets back").click()
    await plain.locator("a[href*='section=A']").click()
    seats = plain.locator("input[name=seat]")
    await expect(seats).to_have_count(36)
    for seat in ("A-2-7", "A-2-8"):
        await plain.locator(f"input[value={seat}]").check()
    await plain.get_by_role("button", name="Hold these tickets").click()
    await expect_held(plain, 2)
    await expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row 2, seat 7")
    before = await plain.locator(".plain-held .big").inner_text()
    await plain.get_by_role("button", name="I need more time").click()
    await expect_held(plain, 2)
    await expect(plain.get_by_role("button", name="I need more time")).to_have_count(0)
    assert before
    await pay(plain)
    await expect_tickets(plain, suite)


async def test_seats_are_called_by_their_labels(plain: Any, suite: RunningSuite) -> None:
    rows = ["B", {"row": "AA", "seats": ["1", "2b", "3"]}]
    event_id = await on_sale(suite, sections=[SECTIONS[0] | {"rows": rows, "seats_per_row": 3, "seats": "even"}])
    await join(plain, suite, event_id)
    await come_in(plain)
    await plain.locator("a[href*='section=A']").click()
    await expect(plain.locator(".plain-seats th")).to_contain_text(["Row B", "Row AA"])
    await expect(plain.locator(".plain-seat")).to_contain_text(["2,", "4,", "6,", "1,", "2b,", "3,"])
    await plain.locator("input[value=A-AA-2b]").check()
    await plain.get_by_role("button", name="Hold these tickets").click()
    await expect_held(plain, 1)
    await expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row AA, seat 2b")


async def test_seats_that_somebody_took_are_said_in_words_beside_the_list(
    plain: Any, chromium: Any, suite: RunningSuite
) -> None:
    event_id = await on_sale(suite)
    other = await chromium.new_context(java_script_enabled=False)
    rival = await other.new_page()
    for page in (plain, rival):
        await join(page, suite, event_id)
        await come_in(page)
        await page.goto(f"{suite.url}/e/{event_id}?section=A")
        await page.locator("input[value=A-1-1]").check()
    for page in (rival, plain):
        await page.get_by_role("button", name="Hold these tickets").click()
    await expect_held(rival, 1)
    await expect(plain.get_by_role("alert").first).to_contain_text("At least one of these seats was taken")

    async def is_gone() -> bool:
        await plain.goto(f"{suite.url}/e/{event_id}?section=A")
        disabled: bool = await plain.locator("input[value=A-1-1]").is_disabled()
        return disabled

    await wait_until(is_gone)
    await other.close()


@pytest.mark.parametrize("way", ["slow", "timeout_after_success", "error_then_ok"])
async def test_each_test_payment_ends_with_tickets(plain: Any, suite: RunningSuite, way: str) -> None:
    await join(plain, suite, await on_sale(suite))
    await come_in(plain)
    await hold_best(plain, 1)
    await pay(plain, f"sandbox:{way}")
    await expect_tickets(plain, suite)


async def test_a_declined_card_is_tried_again_by_the_providers_page(plain: Any, suite: RunningSuite) -> None:
    await join(plain, suite, await on_sale(suite))
    await come_in(plain)
    await hold_best(plain, 1)
    await pay(plain, "sandbox:decline")
    await expect_face(plain, "declined")
    await expect(plain.locator("#plain-order")).to_contain_text("Card declined.")
    order_url = plain.url
    await plain.locator("#plain-method").select_option("sandbox:redirect")
    await plain.get_by_role("button", name="Try the payment again").click()
    await expect_face(plain, "act")
    await plain.get_by_role("link", name="Continue to the payment page").click()
    await plain.get_by_role("button", name="Pay").click()
    await plain.wait_for_url(re.compile(re.escape(order_url)))
    await expect_tickets(plain, suite)


async def test_a_fan_cancels_an_order_that_is_not_paid(plain: Any, suite: RunningSuite) -> None:
    await join(plain, suite, await on_sale(suite))
    await come_in(plain)
    await hold_best(plain, 1)
    await pay(plain, "sandbox:decline")
    await expect_face(plain, "declined")
    await plain.locator("summary", has_text="Cancel this order").click()
    await plain.get_by_role("button", name="Cancel this order").click()
    await expect_face(plain, "cancelled")


async def test_a_promo_code_changes_the_bill_and_a_wrong_one_is_said(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    async with suite.operator() as admin:
        (await admin.put(f"/admin/orders/events/{event_id}/promo-codes/EARLY", json={"percent": 50})).raise_for_status()
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain, 1)
    for code, problems in (("NOPE", 1), ("EARLY", 0)):
        await plain.locator("#plain-promo").fill(code)
        await plain.get_by_role("button", name="Apply").click()
        await expect(plain.locator(".plain-problem")).to_have_count(problems)
    await expect(plain.locator(".plain-held .bill")).to_contain_text("Promo code EARLY")
    price = await plain.locator("form[action='/orders'] .primary").inner_text()
    await pay(plain)
    await expect_tickets(plain, suite)
    assert await plain.locator(".total strong").first.inner_text() in price


async def test_a_lane_opens_for_its_code_and_a_wrong_one_is_said(plain: Any, suite: RunningSuite) -> None:
    lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "weight": 3, "code_required": True}]
    event_id = await on_sale(suite, room={"lanes": lanes, "max_active": 0})
    async with suite.operator() as admin:
        [code] = (await admin.post(f"/admin/queue/events/{event_id}/codes", json={"lane": 1})).json()["codes"]
    await open_lobby(plain, suite, event_id)
    await expect(plain.locator("#code-note")).to_contain_text("Club")
    await plain.locator("#code").fill("WRONG-CODE")
    await plain.locator("#join").click()
    await expect(plain.get_by_role("alert").first).to_contain_text("This code opens no lane")
    await plain.locator("#code").fill(code)
    await plain.locator("#join").click()
    await expect(plain.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert code not in plain.url


async def test_a_sold_out_event_says_so_and_takes_nobody(plain: Any, suite: RunningSuite) -> None:
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 1, "price_minor": 100}
    event_id = await on_sale(suite, sections=[floor])
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain, 1)
    await pay(plain)
    await expect_tickets(plain, suite)
    await plain.context.clear_cookies()

    async def is_sold_out() -> bool:
        await plain.goto(f"{suite.url}/e/{event_id}")
        title: str = await plain.locator("#lobby-title").inner_text()
        return title == "Sold out"

    await wait_until(is_sold_out)
    await expect(plain.locator("#join")).to_be_hidden()
    await expect(plain.locator("#section-GA1 .left")).to_have_text("Sold out")


async def test_a_session_that_ended_leads_back_to_the_line(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, room={**ROOM, "session_s": 10})
    await join(plain, suite, event_id)
    await come_in(plain)

    async def has_ended() -> bool:
        await plain.goto(f"{suite.url}/e/{event_id}")
        ended: bool = await plain.locator("[data-step=ended]").count() == 1
        return ended

    await wait_until(has_ended, timeout_s=60)
    await expect(plain.locator("#plain-title")).to_have_text("Your time to choose has run out")
    await plain.get_by_role("button", name="Join again").click()
    await plain.locator("form[action$='/pass'] button").click(timeout=CALL_TIMEOUT_MS)
    await expect(plain.locator("#plain-quantity")).to_be_visible()


async def test_a_fan_leaves_the_line_and_may_join_again(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, room={"max_active": 0})
    await join(plain, suite, event_id)
    await expect(plain.locator("#join-seq")).to_have_text("1")
    await plain.locator("summary", has_text="Leave the line").click()
    await plain.get_by_role("button", name="Leave the line").click()
    await expect(plain.locator("#join")).to_be_visible()
    await plain.locator("#join").click()
    await expect(plain.locator("#join-seq")).to_have_text("2")


@pytest.mark.parametrize(("button", "bought_by"), [("taken", "ada@gmail.com"), ("kept", "ada@gmial.com")])
async def test_a_doubtful_address_is_asked_about_and_can_be_corrected(
    plain: Any, suite: RunningSuite, button: str, bought_by: str
) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain)
    await plain.locator("#plain-name").fill("Ada Lovelace")
    await plain.locator("#plain-email").fill("ada@gmial.com")
    await plain.locator("form[action='/orders'] .primary").first.click()
    question = words("en")("email_meant", email="ada@gmail.com")
    await expect(plain.locator(".email-meant legend")).to_have_text(question)
    await expect(plain.locator("#plain-name")).to_have_value("Ada Lovelace")
    await plain.locator(f"[name=email_{button}]").click()
    await plain.wait_for_url("**/o/*")
    await expect_face(plain, "confirmed")
    mails = plain.locator("#plain-mails")
    await expect(mails).to_have_text(words("en")("address_mails_to", email=bought_by))
    await plain.locator("#plain-address summary").click()
    await plain.locator("#plain-email").fill("ada@hotnail.com")
    await plain.locator("form[action$='/email'] .quiet").first.click()
    await plain.locator("[name=email_taken]").click()
    await expect(mails).to_have_text(words("en")("address_mails_to", email="ada@hotmail.com"))


async def test_names_are_typed_for_each_ticket_and_changed(plain: Any, suite: RunningSuite) -> None:
    text = words("en")
    event_id = await on_sale(suite, sales={"names": "ticket"})
    await join(plain, suite, event_id)
    await come_in(plain)
    await hold_best(plain)
    labels = [text("name_on_ticket", n=n, place=f"Block A, row 1, seat {n + 5}") for n in (1, 2)]
    await expect(plain.locator(".names label")).to_have_text(labels)
    await expect(plain.locator("#plain-name-1")).to_have_attribute("autocomplete", "name")
    await plain.get_by_label(labels[0]).fill("Ada Lovelace")
    await plain.get_by_label(labels[1]).fill("  ")
    await pay_refused(plain)
    wrong = plain.get_by_label(labels[1])
    await expect(wrong).to_have_accessible_description(text("name_missing"))
    await expect(plain.get_by_label(labels[0])).to_have_value("Ada Lovelace")
    await wrong.fill("Grace Hopper")
    await pay(plain)
    await expect_tickets(plain, suite)
    await expect(plain.locator(".plain-tickets li")).to_contain_text([": Ada Lovelace", ": Grace Hopper"])
    await plain.locator("#plain-names summary").click()
    await plain.get_by_label(labels[1]).fill("Mary Jackson")
    await plain.get_by_role("button", name=text("names_save")).click()
    await expect(plain.locator(".plain-tickets li")).to_contain_text([": Ada Lovelace", ": Mary Jackson"])


async def pay_refused(page: Any) -> None:
    """Orders, and comes back to the form with the words of the refusal."""
    await page.locator("#plain-name").fill("Ada Lovelace")
    await page.locator("#plain-email").fill("ada@example.org")
    await page.locator("form[action='/orders'] .primary").first.click()
    await page.wait_for_url("**problem=invalid-request*")


WIDTHS = (320, 390, 1440)


@pytest.fixture
async def unwrapped(chromium: Any, suite: RunningSuite) -> AsyncIterator[Any]:
    """A page whose scripts never arrive, and which shows what stands in `noscript`."""
    context = await chromium.new_context(locale="en-GB", reduced_motion="reduce")
    await context.add_cookies([{"name": "onsale_plain", "value": "1", "url": suite.url}])
    page = await context.new_page()

    async def document(route: Any) -> None:
        response = await route.fetch(max_redirects=0)
        if response.status == 303:
            return await route.fulfill(response=response)
        headers = {name: value for name, value in response.headers.items() if name != "refresh"}
        body = re.sub(r"</?noscript>", "", await response.text())
        return await route.fulfill(response=response, headers=headers, body=body)

    await page.route(re.compile(r"/(e|o)/[^/]+$|/(e|o)/[^/]+\?"), document)
    await page.route("**/static/*.js", lambda route: route.abort())
    yield page
    await context.close()


async def check(page: Any, step: str) -> list[str]:
    problems = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 812})
        problems += [f"{step} at {width} px: {problem}" for problem in await layout_problems(page)]
    await page.set_viewport_size({"width": 390, "height": await page.evaluate("document.documentElement.scrollHeight")})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        problems += [
            f"{step}, {scheme}: {each}" for each in [*await contrast_problems(page), *await axe_problems(page)]
        ]
    await page.emulate_media(color_scheme="light")
    return problems


async def submit(page: Any, form: str) -> None:
    """Sends a form, and loads the page that it leads to once more: documents after a redirect pass by the route."""
    async with page.expect_navigation():
        await page.locator(f"{form} button").first.click()
    await page.goto(page.url)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_step_is_readable(unwrapped: Any, suite: RunningSuite, language: str) -> None:
    page = unwrapped
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    await open_lobby(page, suite, await on_sale(suite, room={"max_active": 0}))
    problems = await check(page, "lobby")
    await submit(page, "#join-form")
    problems += await check(page, "waiting")
    event_id = await on_sale(suite)
    await open_lobby(page, suite, event_id)
    await submit(page, "#join-form")

    async def is_called() -> bool:
        await page.goto(page.url)
        return bool(await page.locator("form[action$='/pass']").count())

    await wait_until(is_called)
    problems += await check(page, "called")
    await submit(page, "form[action$='/pass']")
    problems += await check(page, "choosing")
    await page.goto(f"{suite.url}/e/{event_id}?section=A&problem=seats-taken")
    problems += await check(page, "seats")
    await page.goto(f"{suite.url}/e/{event_id}")
    await submit(page, "form:has(#plain-quantity)")
    problems += await check(page, "held")
    await page.locator("#plain-name").fill("Ada")
    await page.locator("#plain-email").fill("ada@example.org")
    await page.locator("#plain-method").select_option("sandbox:decline")
    await submit(page, "form[action='/orders']")
    await expect_face(page, "declined")
    problems += await check(page, "declined")
    assert problems == [], "\n".join(problems)


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
