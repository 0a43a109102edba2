"""A fan buys tickets in a browser: choice of seats, payment methods, declined cards, access and promo codes, mistyped
addresses."""

import re
from typing import Any

import pytest
from playwright import sync_api

from shared.words.words import words
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    enter,
    enter_from_catalogue,
    expect_confirmed,
    hold,
    hold_and_pay,
    operator,
    pay,
    put_on_sale,
    select_ga_ticket,
    select_seat,
)
from tests.support.running.suite import RunningSuite


def test_a_fan_buys_a_seat_and_a_ga_ticket(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    seat = select_seat(page, "A")
    select_ga_ticket(page)
    sync_api.expect(page.locator("#basket-count")).to_have_text("2 tickets")
    hold_and_pay(page, "ok")
    expect_confirmed(page)
    tickets = page.locator("#tickets li")
    sync_api.expect(tickets).to_have_count(2)
    row_and_number = seat.split(", ", 1)[1]
    sync_api.expect(page.locator("#tickets")).to_contain_text(re.compile(re.escape(row_and_number), re.IGNORECASE))
    reference = page.locator("#reference").inner_text()
    page.reload()
    sync_api.expect(page.locator("#reference")).to_have_text(reference)
    expect_confirmed(page)
    codes = page.get_by_alt_text(re.compile("to show at the door"))
    sync_api.expect(codes).to_have_count(2)
    sync_api.expect(codes.first).to_have_js_property("complete", True)
    assert codes.first.evaluate("image => image.naturalWidth") > 0
    open_by_mailed_link(page, suite, reference)


def open_by_mailed_link(page: Any, suite: RunningSuite, reference: str) -> None:
    """Opens the order in a browser without its cookie, by the link that a mail contains."""
    [key] = [cookie["value"] for cookie in page.context.cookies() if cookie["name"] == f"onsale_order_{reference}"]
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"{suite.url}/o/{reference}#key={key}")
    expect_confirmed(page)
    assert "#" not in page.url
    page.reload()
    sync_api.expect(page.locator("#reference")).to_have_text(reference)


def test_a_fan_whose_card_is_declined_pays_with_another(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold_and_pay(page, "decline")
    sync_api.expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    page.locator("#method").select_option("ok")
    page.locator("#pay-again").click()
    expect_confirmed(page)


def test_a_fan_pays_on_the_providers_page_and_returns_to_the_order(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold_and_pay(page, "redirect")
    order_url = page.url
    page.locator("#act").click()
    page.get_by_role("button", name="Pay").click()
    page.wait_for_url(order_url)
    expect_confirmed(page)


def test_a_fan_who_cancelled_an_order_chooses_again(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold_and_pay(page, "decline")
    sync_api.expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#again")).to_be_hidden()
    page.locator("#cancel").click()
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "cancelled", timeout=CALL_TIMEOUT_MS)
    page.locator("#again").click()
    page.wait_for_url("**/e/arena-2026")


def test_a_hold_survives_a_reload_and_its_release_returns_to_the_choice(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold(page)
    page.reload()
    sync_api.expect(page.locator("#held")).to_be_visible()
    page.locator("#give-back").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible()
    sync_api.expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")


def test_a_fan_holds_the_best_available_seats(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    page.locator("#best-quantity").select_option("3")
    page.locator("#best-where").select_option(label="Block B")
    page.locator("#best-find").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    seats = page.locator("#held-tickets li span").all_inner_texts()
    matches = [re.fullmatch(r"Block B, row (\d+), seat (\d+)", seat) for seat in seats]
    rows, numbers = zip(*((match[1], int(match[2])) for match in matches if match), strict=True)
    assert (len(set(rows)), numbers) == (1, tuple(range(numbers[0], numbers[0] + 3)))
    page.locator("#give-back").click()


def test_a_fan_who_asks_for_more_than_is_left_is_told_how_many_are_left_and_where(
    page: Any, suite: RunningSuite
) -> None:
    two = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 2, "price_minor": 100}
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=[two])}")
    enter(page)
    page.locator("#best-quantity").select_option("5")
    page.locator("#best-find").click()
    sync_api.expect(page.locator("#trouble-text")).to_have_text(
        re.compile(r"^Only \W*2\W* of these tickets are left in \W*Floor\W*\.$")
    )


def put_presale_on_sale(suite: RunningSuite) -> tuple[str, str]:
    """An open event with a presale lane that needs an access code; the event's id and a code."""
    lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "weight": 3, "code_required": True}]
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 100}
    event_id = put_on_sale(suite, room={"lanes": lanes, "max_active": 0}, sections=[floor])
    with operator(suite) as admin:
        [code] = admin.post(f"/admin/queue/events/{event_id}/codes", json={"lane": 1}).json()["codes"]
    return event_id, code


def test_a_fan_with_an_access_code_joins_the_presale_lane(page: Any, suite: RunningSuite) -> None:
    event_id, code = put_presale_on_sale(suite)
    page.goto(f"{suite.url}/e/{event_id}")
    field = page.get_by_label("Code, if you have one", exact=True)
    field.fill("not a code of ours")
    page.locator("#join").click()
    sync_api.expect(page.locator("#code-error")).to_contain_text("opens no lane of this line")
    field.fill(code.lower())
    field.press("Enter")
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert code not in page.url


def put_priced_on_sale(suite: RunningSuite) -> str:
    """An open event with fees, taxes and two promo codes: EARLY takes 20 % off, FREE everything."""
    event_id = put_on_sale(
        suite,
        sections=[{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 5000}],
        fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 150},
              {"name": "Order fee", "per": "order", "percent": "2.5"}],
        taxes=[{"name": "VAT", "percent": 19}],
    )  # fmt: skip
    with operator(suite) as admin:
        for code, percent in (("EARLY", 20), ("FREE", 100)):
            path = f"/admin/orders/events/{event_id}/promo-codes/{code}"
            admin.put(path, json={"percent": percent}).raise_for_status()
    return event_id


def test_a_fan_sees_every_fee_and_pays_less_with_a_promo_code(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/e/{put_priced_on_sale(suite)}")
    sync_api.expect(page.locator("#event-from")).to_have_text("from €52.75")
    sync_api.expect(page.locator("#section-GA1 .price")).to_have_text("€52.75")
    sync_api.expect(page.locator("#on-top")).to_contain_text("Booking fee €1.50 per ticket")
    enter(page)
    select_ga_ticket(page)
    sync_api.expect(page.locator("#basket-total")).to_have_text("€52.75")
    hold(page)
    sync_api.expect(page.locator("#held-total")).to_have_text("€52.75")
    page.locator("#promo").fill("nonsense")
    page.locator("#promo-apply").click()
    sync_api.expect(page.locator("#promo-note")).to_have_text("This promo code is not valid.")
    sync_api.expect(page.locator("#held-total")).to_have_text("€52.75")
    page.locator("#promo").fill("early")
    page.locator("#promo-apply").click()
    sync_api.expect(page.locator("#held-total")).to_have_text("€42.50")
    lines = page.locator("#bill li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "Tickets €50.00", "Promo code EARLY (20 %) -€10.00", "Booking fee €1.50", "Order fee (2.5 %) €1.00",
        "Includes VAT (19 %) €6.79",
    ]  # fmt: skip
    pay(page)
    expect_confirmed(page)
    sync_api.expect(page.locator("#total")).to_have_text("€42.50")
    sync_api.expect(page.locator("#bill li")).to_have_count(5)


def test_a_fan_with_a_promo_code_of_100_percent_pays_nothing(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/e/{put_priced_on_sale(suite)}")
    enter(page)
    select_ga_ticket(page)
    hold(page)
    page.locator("#promo").fill("FREE")
    page.locator("#promo-apply").click()
    sync_api.expect(page.locator("#pay")).to_have_text("Get the tickets")
    sync_api.expect(page.locator("#method")).to_be_hidden()
    pay(page, method=None)
    expect_confirmed(page)


@pytest.mark.parametrize(("button", "bought_by"), [("#email-take", "ada@gmail.com"), ("#email-keep", "ada@gmial.com")])
def test_a_fan_is_asked_once_and_corrects_the_address_afterwards(
    page: Any, suite: RunningSuite, button: str, bought_by: str
) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold(page)
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@gmial.com")
    page.locator("#pay").click()
    sync_api.expect(page.locator("#email-meant")).to_be_visible()
    sync_api.expect(page.locator("#email-meant-text")).to_have_text(words("en")("email_meant", email="ada@gmail.com"))
    sync_api.expect(page).not_to_have_url(re.compile("/o/"))
    page.locator(button).click()
    page.wait_for_url("**/o/*")
    expect_confirmed(page)
    sync_api.expect(page.locator("#address-text")).to_have_text(words("en")("address_mails_to", email=bought_by))
    page.locator("#address-change summary").click()
    page.locator("#email").fill("ada@hotnail.com")
    page.locator("#address-save").click()
    page.locator("#email-take").click()
    corrected = words("en")("address_mails_to", email="ada@hotmail.com")
    sync_api.expect(page.locator("#address-text")).to_have_text(corrected)
    page.reload()
    sync_api.expect(page.locator("#address-text")).to_have_text(corrected)


def test_a_domain_without_a_dot_is_not_sent(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold(page)
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@gmial")
    page.locator("#pay").click()
    assert page.locator("#email").evaluate("field => field.validity.patternMismatch")
    sync_api.expect(page.locator("#held")).to_be_visible()
