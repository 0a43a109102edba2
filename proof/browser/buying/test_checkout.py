"""A fan buys tickets in a browser: choice of seats, payment methods, declined cards, access and promo codes, mistyped
addresses.

A limit per customer, over several events too, is told before anybody waits, and named when an order exceeds it. The
order page shows a fan the progress of a pending order.

A page reloaded at any stage is where it was: nothing is lost, nothing is bought twice.

The whole way by keyboard alone: every control is reached by Tab, and focus is never lost or hidden.

`/onsale.js` waits and hears updates by stream, and by polls where there is none.
"""

import re
import uuid
from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import words
from tests.browser.buying.test_ways import shops_page
from tests.browser.keyboard import tab_to
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    SOON,
    UPDATES,
    WaitingEvent,
    enter,
    enter_from_catalogue,
    expect_confirmed,
    hold,
    hold_and_pay,
    join_and_wait,
    pay,
    put_on_sale,
    select_ga_ticket,
    select_seat,
    wait_until_listed,
)
from tests.support.running.suite import RunningSuite

SEATED = {
    "section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 12, "price_minor": 5000,
}  # fmt: skip


async def test_a_fan_buys_a_seat_and_a_ga_ticket(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    seat = await select_seat(page, "A")
    await select_ga_ticket(page)
    await expect(page.locator("#basket-count")).to_have_text("2 tickets")
    await hold_and_pay(page, "ok")
    await expect_confirmed(page)
    tickets = page.locator("#tickets li")
    await expect(tickets).to_have_count(2)
    row_and_number = seat.split(", ", 1)[1]
    await expect(page.locator("#tickets")).to_contain_text(re.compile(re.escape(row_and_number), re.IGNORECASE))
    reference = await page.locator("#reference").inner_text()
    await page.reload()
    await expect(page.locator("#reference")).to_have_text(reference)
    await expect_confirmed(page)
    codes = page.get_by_alt_text(re.compile("to show at the door"))
    await expect(codes).to_have_count(2)
    await expect(codes.first).to_have_js_property("complete", True)
    assert await codes.first.evaluate("image => image.naturalWidth") > 0
    await open_by_mailed_link(page, suite, reference)


async def open_by_mailed_link(page: Any, suite: RunningSuite, reference: str) -> None:
    """Opens the order in a browser without its cookie, by the link that a mail contains."""
    [key] = [
        cookie["value"] for cookie in await page.context.cookies() if cookie["name"] == f"onsale_order_{reference}"
    ]
    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(f"{suite.url}/o/{reference}#key={key}")
    await expect_confirmed(page)
    assert "#" not in page.url
    await page.reload()
    await expect(page.locator("#reference")).to_have_text(reference)


async def test_a_fan_names_each_ticket_and_changes_one(page: Any, suite: RunningSuite) -> None:
    event_id = await put_on_sale(suite, sections=[SEATED], sales={"names": "ticket"})
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.locator("#best-quantity").select_option("2")
    await page.locator("#best-find").click()
    fields = page.locator("#names-fields input")
    await expect(fields).to_have_count(2)
    for field, name in zip(await fields.all(), ("Ada Lovelace", "Grace Hopper"), strict=True):
        await field.fill(name)
    await pay(page)
    await expect_confirmed(page)
    names = page.locator(".ticket-name")
    await expect(names).to_have_text(["Ada Lovelace", "Grace Hopper"])
    await page.locator("#names-change summary").click()
    await fields.nth(1).fill("Mary Jackson")
    await page.locator("#names-save").click()
    await expect(names).to_have_text(["Ada Lovelace", "Mary Jackson"])
    await page.reload()
    await expect(names).to_have_text(["Ada Lovelace", "Mary Jackson"])


async def test_a_fan_whose_card_is_declined_pays_with_another(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold_and_pay(page, "decline")
    await expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#method").select_option("ok")
    await page.locator("#pay-again").click()
    await expect_confirmed(page)


async def test_a_fan_pays_on_the_providers_page_and_returns_to_the_order(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold_and_pay(page, "redirect")
    order_url = page.url
    await page.locator("#act").click()
    await page.get_by_role("button", name="Pay").click()
    await page.wait_for_url(order_url)
    await expect_confirmed(page)


async def test_a_fan_who_cancelled_an_order_chooses_again(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold_and_pay(page, "decline")
    await expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#again")).to_be_hidden()
    await page.locator("#cancel").click()
    await expect(page.locator("#order")).to_have_attribute("data-face", "cancelled", timeout=CALL_TIMEOUT_MS)
    await page.locator("#again").click()
    await page.wait_for_url("**/e/arena-2026")


async def test_a_hold_survives_a_reload_and_its_release_returns_to_the_choice(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold(page)
    await page.reload()
    await expect(page.locator("#held")).to_be_visible()
    await page.locator("#give-back").click()
    await expect(page.locator("#choosing")).to_be_visible()
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")


async def test_a_fan_holds_the_best_available_seats(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await page.locator("#best-quantity").select_option("3")
    await page.locator("#best-where").select_option(label="Block B")
    await page.locator("#best-find").click()
    await expect(page.locator("#held")).to_be_visible()
    seats = await page.locator("#held-tickets li span").all_inner_texts()
    matches = [re.fullmatch(r"Block B, row (\d+), seat (\d+)", seat) for seat in seats]
    rows, numbers = zip(*((match[1], int(match[2])) for match in matches if match), strict=True)
    assert (len(set(rows)), numbers) == (1, tuple(range(numbers[0], numbers[0] + 3)))
    await page.locator("#give-back").click()


async def test_a_fan_who_asks_for_more_than_is_left_is_told_how_many_are_left_and_where(
    page: Any, suite: RunningSuite
) -> None:
    two = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 2, "price_minor": 100}
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[two])}")
    await enter(page)
    await page.locator("#best-quantity").select_option("5")
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_have_text(
        re.compile(r"^Only \W*2\W* of these tickets are left in \W*Floor\W*\.$")
    )


async def put_presale_on_sale(suite: RunningSuite) -> tuple[str, str]:
    """An open event with a presale lane that needs an access code; the event's id and a code."""
    lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "weight": 3, "code_required": True}]
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 100}
    event_id = await put_on_sale(suite, room={"lanes": lanes, "max_active": 0}, sections=[floor])
    async with suite.operator() as admin:
        [code] = (await admin.post(f"/admin/queue/events/{event_id}/codes", json={"lane": 1})).json()["codes"]
    return event_id, code


async def test_a_fan_with_an_access_code_joins_the_presale_lane(page: Any, suite: RunningSuite) -> None:
    event_id, code = await put_presale_on_sale(suite)
    await page.goto(f"{suite.url}/e/{event_id}")
    field = page.get_by_label("Code, if you have one", exact=True)
    await field.fill("not a code of ours")
    await page.locator("#join").click()
    await expect(page.locator("#code-error")).to_contain_text("opens no lane of this line")
    await field.fill(code.lower())
    await field.press("Enter")
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert code not in page.url


async def put_priced_on_sale(suite: RunningSuite) -> str:
    """An open event with fees, taxes and two promo codes: EARLY takes 20 % off, FREE everything."""
    event_id = await put_on_sale(
        suite,
        sections=[{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 5000}],
        fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 150},
              {"name": "Order fee", "per": "order", "percent": "2.5"}],
        taxes=[{"name": "VAT", "percent": 19}],
    )  # fmt: skip
    async with suite.operator() as admin:
        for code, percent in (("EARLY", 20), ("FREE", 100)):
            path = f"/admin/orders/events/{event_id}/promo-codes/{code}"
            (await admin.put(path, json={"percent": percent})).raise_for_status()
    return event_id


async def test_a_fan_sees_every_fee_and_pays_less_with_a_promo_code(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_priced_on_sale(suite)}")
    await expect(page.locator("#event-from")).to_have_text("from €52.75")
    await expect(page.locator("#section-GA1 .price")).to_have_text("€52.75")
    await expect(page.locator("#on-top")).to_contain_text("Booking fee €1.50 per ticket")
    await enter(page)
    await select_ga_ticket(page)
    await expect(page.locator("#basket-total")).to_have_text("€52.75")
    await hold(page)
    await expect(page.locator("#held-total")).to_have_text("€52.75")
    await page.locator("#promo").fill("nonsense")
    await page.locator("#promo-apply").click()
    await expect(page.locator("#promo-note")).to_have_text("This promo code is not valid.")
    await expect(page.locator("#held-total")).to_have_text("€52.75")
    await page.locator("#promo").fill("early")
    await page.locator("#promo-apply").click()
    await expect(page.locator("#held-total")).to_have_text("€42.50")
    lines = await page.locator("#bill li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "Tickets €50.00", "Promo code EARLY (20 %) -€10.00", "Booking fee €1.50", "Order fee (2.5 %) €1.00",
        "Includes VAT (19 %) €6.79",
    ]  # fmt: skip
    await pay(page)
    await expect_confirmed(page)
    await expect(page.locator("#total")).to_have_text("€42.50")
    await expect(page.locator("#bill li")).to_have_count(5)


async def test_a_fan_with_a_promo_code_of_100_percent_pays_nothing(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_priced_on_sale(suite)}")
    await enter(page)
    await select_ga_ticket(page)
    await hold(page)
    await page.locator("#promo").fill("FREE")
    await page.locator("#promo-apply").click()
    await expect(page.locator("#pay")).to_have_text("Get the tickets")
    await expect(page.locator("#method")).to_be_hidden()
    await pay(page, method=None)
    await expect_confirmed(page)


@pytest.mark.parametrize(("button", "bought_by"), [("#email-take", "ada@gmail.com"), ("#email-keep", "ada@gmial.com")])
async def test_a_fan_is_asked_once_and_corrects_the_address_afterwards(
    page: Any, suite: RunningSuite, button: str, bought_by: str
) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@gmial.com")
    await page.locator("#pay").click()
    await expect(page.locator("#email-meant")).to_be_visible()
    await expect(page.locator("#email-meant-text")).to_have_text(words("en")("email_meant", email="ada@gmail.com"))
    await expect(page).not_to_have_url(re.compile("/o/"))
    await page.locator(button).click()
    await page.wait_for_url("**/o/*")
    await expect_confirmed(page)
    await expect(page.locator("#address-text")).to_have_text(words("en")("address_mails_to", email=bought_by))
    await page.locator("#address-change summary").click()
    await page.locator("#email").fill("ada@hotnail.com")
    await page.locator("#address-save").click()
    await page.locator("#email-take").click()
    corrected = words("en")("address_mails_to", email="ada@hotmail.com")
    await expect(page.locator("#address-text")).to_have_text(corrected)
    await page.reload()
    await expect(page.locator("#address-text")).to_have_text(corrected)


async def test_a_domain_without_a_dot_is_not_sent(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await select_seat(page, "A")
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@gmial")
    await page.locator("#pay").click()
    assert await page.locator("#email").evaluate("field => field.validity.patternMismatch")
    await expect(page.locator("#held")).to_be_visible()


TOUR_MAX = 3
FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}


async def buy_two(page: Any, suite: RunningSuite, event_id: str, email: str) -> None:
    await page.goto(f"{suite.url}/e/{event_id}")
    await expect(page.locator("#event-limit")).to_have_text(
        "up to 6 tickets each · 3 tickets per customer for the whole tour"
    )
    await enter(page)
    await select_ga_ticket(page)
    await select_ga_ticket(page)
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill(email)
    await page.locator("#pay").click()


async def test_the_limit_of_a_tour_is_told_and_counts_over_its_events(page: Any, suite: RunningSuite) -> None:
    tour = {"tour_id": f"tour-{uuid.uuid4().hex[:8]}", "tickets_per_customer": TOUR_MAX}
    email = f"ada-{uuid.uuid4().hex}@example.org"
    first, second = [await put_on_sale(suite, sections=[FLOOR], sales={"tour": tour}) for _ in range(2)]
    await buy_two(page, suite, first, email)
    await expect_confirmed(page)
    await buy_two(page, suite, second, email)
    await expect(page.locator("#trouble-text")).to_have_text(
        "More than is allowed: 3 tickets per customer for the whole tour. 2 are taken already."
    )
    await page.locator("#held-tickets button").click()
    await expect(page.locator("#held-tickets")).to_contain_text("1 × Floor")
    await page.locator("#pay").click()
    await expect_confirmed(page)


STEPS = {
    "waiting": "Step 1 of 3",
    "paying": "Step 2 of 3: the payment is under way",
    "your-turn": "Step 2 of 3: the payment waits for you",
    "confirming": "Step 3 of 3",
    "cancelling": "We ask the provider",
}


@pytest.fixture
async def ordering_page(page: Any, suite: RunningSuite) -> Any:
    """A page with a GA ticket in its basket."""
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 3000}
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[floor])}")
    await enter(page)
    await select_ga_ticket(page)
    return page


async def test_the_page_shows_a_slow_payment_until_the_order_is_confirmed(ordering_page: Any) -> None:
    await hold_and_pay(ordering_page, "slow")
    progress = ordering_page.get_by_role("status").and_(ordering_page.locator("#progress"))
    await expect(progress).to_contain_text(STEPS["paying"])
    await expect_confirmed(ordering_page)
    await expect(progress).to_be_hidden()


async def test_each_step_of_an_order_has_its_text_and_moves_nothing_below(ordering_page: Any) -> None:
    state = {"status": "pending", "progress": "waiting", "confirmed_at": None, "attempt": None, "fulfilled_at": None}

    async def answer_with_state(route: Any) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), **state})

    await hold_and_pay(ordering_page, "redirect")
    await ordering_page.route(f"**/orders/{ordering_page.url.split('/')[-1]}", answer_with_state)
    await ordering_page.set_viewport_size({"width": 480, "height": 900})
    tops = set()
    for state["progress"], text in STEPS.items():
        await ordering_page.reload()
        await expect(ordering_page.locator("#progress")).to_contain_text(text)
        tops.add((await ordering_page.locator(".order-facts").bounding_box())["y"])
    assert len(tops) == 1


async def test_waiting(page: Any, event: WaitingEvent) -> None:
    await join_and_wait(page, event)
    number = await page.locator("#join-seq").inner_text()
    await page.reload()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    assert await page.locator("#join-seq").inner_text() == number


async def test_choosing_holding_and_paying(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await select_ga_ticket(page)
    await hold(page)
    await page.reload()
    await expect(page.locator("#held-tickets li")).to_have_count(1, timeout=CALL_TIMEOUT_MS)
    await pay(page, "slow")
    await page.reload()
    await expect(page.locator("#order")).to_have_attribute("data-face", "processing")
    await expect_confirmed(page)
    await page.reload()
    await expect_confirmed(page)
    await expect(page.locator("#tickets li")).to_have_count(1)
    await page.go_back()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def test_an_order_whose_answer_was_lost_is_found_after_a_reload(page: Any, suite: RunningSuite) -> None:
    """The first answer is cut; the page is reloaded before its second try."""
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await select_ga_ticket(page)
    await hold(page)

    async def cut(route: Any) -> None:
        await route.fetch()
        await route.abort()

    await page.route("**/orders", cut, times=1)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    async with page.expect_event("requestfailed"):
        await page.locator("#pay").click()
    await page.reload()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#to-order").click()
    await expect_confirmed(page)
    await page.context.clear_cookies(name=re.compile("onsale_(pass|queue)_"))
    await page.reload()
    await expect_confirmed(page)


async def test_choosing_goes_on_while_the_stream_is_cut(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await page.context.route(f"{UPDATES}*", lambda route: route.abort())
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    other = await (await page.context.browser.new_context()).new_page()
    await other.goto(page.url)
    await enter(other)
    await select_ga_ticket(other)
    await hold(other)
    await other.context.close()
    await expect(page.locator("#section-GA1 .left")).to_have_text("49 of 50 left", timeout=20_000)
    await select_ga_ticket(page)
    await hold(page)


SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 6, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]


async def test_a_fan_buys_two_seats_together_by_keyboard(page: Any, suite: RunningSuite) -> None:
    event_id = await put_on_sale(suite, sections=SECTIONS, starts_at=SOON)
    await page.goto(f"{suite.url}/")
    await wait_until_listed(page, event_id)
    await tab_to(page, f"#events a[href='/e/{event_id}']")
    await page.keyboard.press("Enter")
    await expect(page.locator("#join")).to_be_visible()
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#choosing-title")).to_be_focused()
    await tab_to(page, "#section-A button")
    await page.keyboard.press("Enter")
    await expect(page.locator("#seats-title")).to_be_focused()
    await tab_to(page, "#seats .seat")
    for key in ("ArrowDown", "ArrowRight", "Enter", "ArrowRight", "Space"):
        await page.keyboard.press(key)
    await expect(page.locator("#basket-count")).to_have_text("2 tickets")
    await expect(page.locator("#basket-list")).to_contain_text("row 2, seat 2 · Block A, row 2, seat 3")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#name")
    await page.keyboard.type("Ada Lovelace")
    await tab_to(page, "#email")
    await page.keyboard.type(f"ada-{uuid.uuid4().hex}@example.org")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/o/*")
    await expect_confirmed(page)
    await expect(page.locator(".ticket .code")).to_have_count(2, timeout=CALL_TIMEOUT_MS)  # moves what is below
    await tab_to(page, "#tickets-pdf")


async def test_tickets_are_given_back_and_the_line_is_left_by_keyboard(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=SECTIONS)}")
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await tab_to(page, "#section-GA1 .step:last-of-type")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#give-back")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing-title")).to_be_focused()


JOIN_AND_WAIT = """async (event) => {
  const { Client, Fan } = await import("/onsale.js");
  window.fan = new Fan(new Client(), event);
  await fan.join();
  window.seen = [];
  window.waited = fan.wait((place) => seen.push(place.status));
  return fan.place.position_in_queue;
}"""


async def test_a_call_ends_the_wait_with_and_without_a_stream(page: Any, event: WaitingEvent) -> None:
    """The tokens stay in cookies that scripts cannot read."""
    for streams in (True, False):
        if not streams:
            await page.context.clear_cookies()
            await page.route(UPDATES, lambda route: route.abort())
        await event.operate("PATCH", event.room, {"max_active": 0, "reason": "test"})
        await shops_page(page, f"{event.suite.url}/shop.html")
        assert await page.evaluate(JOIN_AND_WAIT, event.event_id) >= 0
        await event.operate("PATCH", event.room, {"max_active": 5, "reason": "test"})
        place = await page.evaluate("() => waited")
        assert (place["status"], await page.evaluate("() => seen.at(-1)")) == ("ready", "ready")
        answer = await page.evaluate("() => fan.claim()")
        assert answer["pass"]
        kept = "() => [fan.queueToken ?? null, fan.pass ?? null, document.cookie.includes('pass')]"
        assert await page.evaluate(kept) == [None, None, False]


async def test_updates_come_by_stream_and_by_polls_where_there_is_none(page: Any, event: WaitingEvent) -> None:
    await shops_page(page, f"{event.suite.url}/shop.html")
    await page.evaluate(JOIN_AND_WAIT, event.event_id)
    hear = """(n) => new Promise((done) => {
      const heard = {}, states = [];
      const tell = (kind) => (frame) => {
        heard[kind] = frame;
        if (heard.line && heard.sections) { stop(); done([states, heard.sections.sections[0].available_seats]); }
      };
      const stop = fan.updates({ line: tell("line"), sections: tell("sections") }, (state) => states.push(state));
    })"""
    states, left = await page.evaluate(hear)
    assert (states, left) == (["live"], 90)
    await page.route(UPDATES, lambda route: route.abort())
    states, left = await page.evaluate(hear)
    assert ("live" in states, left) == (False, 90)
