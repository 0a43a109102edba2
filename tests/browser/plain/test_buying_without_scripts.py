"""The whole way in a browser without scripts: join, wait, come in, hold, pay and print, by forms alone."""

import re
from typing import Any

import pytest
from playwright import sync_api

from shared.words.words import LANGUAGES, words
from tests.browser.plain.plain_steps import (
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
from tests.browser.steps import CALL_TIMEOUT_MS, operator
from tests.support.running.suite import RunningSuite
from tests.support.wait import until


def reload_until_title(page: Any, url: str, title: str) -> None:
    """The line hears of a purchase a moment later."""

    def has_title() -> bool:
        page.goto(url)
        return page.locator("#plain-title").inner_text() == title

    until(has_title, what=title)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_fan_buys_the_best_seats_in_each_language(plain: Any, suite: RunningSuite, language: str) -> None:
    plain.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    hold_best(plain)
    pay(plain)
    expect_tickets(plain, suite)
    sync_api.expect(plain.locator("#plain-title")).to_have_text(words(language)("order_confirmed"))
    reload_until_title(plain, f"{suite.url}/e/{event_id}", words(language)("completed_title"))
    sync_api.expect(plain.locator(".plain-orders a")).to_have_count(1)


def test_a_fan_holds_general_admission_gives_it_back_and_holds_seats_from_the_list(
    plain: Any, suite: RunningSuite
) -> None:
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    plain.locator("#ga-GA1").select_option("3")
    plain.locator("form:has(#ga-GA1) .primary").click()
    expect_held(plain, 1)
    sync_api.expect(plain.locator(".tickets-held li")).to_have_text("3 × Floor")
    plain.get_by_role("button", name="Give the tickets back").click()
    plain.locator("a[href*='section=A']").click()
    seats = plain.locator("input[name=seat]")
    sync_api.expect(seats).to_have_count(36)
    for seat in ("A-2-7", "A-2-8"):
        plain.locator(f"input[value={seat}]").check()
    plain.get_by_role("button", name="Hold these tickets").click()
    expect_held(plain, 2)
    sync_api.expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row 2, seat 7")
    before = plain.locator(".plain-held .big").inner_text()
    plain.get_by_role("button", name="I need more time").click()
    expect_held(plain, 2)
    sync_api.expect(plain.get_by_role("button", name="I need more time")).to_have_count(0)
    assert before
    pay(plain)
    expect_tickets(plain, suite)


def test_seats_are_called_by_their_labels(plain: Any, suite: RunningSuite) -> None:
    rows = ["B", {"row": "AA", "seats": ["1", "2b", "3"]}]
    event_id = on_sale(suite, sections=[SECTIONS[0] | {"rows": rows, "seats_per_row": 3, "seats": "even"}])
    join(plain, suite, event_id)
    come_in(plain)
    plain.locator("a[href*='section=A']").click()
    sync_api.expect(plain.locator(".plain-seats th")).to_contain_text(["Row B", "Row AA"])
    sync_api.expect(plain.locator(".plain-seat")).to_contain_text(["2,", "4,", "6,", "1,", "2b,", "3,"])
    plain.locator("input[value=A-AA-2b]").check()
    plain.get_by_role("button", name="Hold these tickets").click()
    expect_held(plain, 1)
    sync_api.expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row AA, seat 2b")


def test_seats_that_somebody_took_are_said_in_words_beside_the_list(
    plain: Any, browser: Any, suite: RunningSuite
) -> None:
    event_id = on_sale(suite)
    other = browser.new_context(java_script_enabled=False)
    rival = other.new_page()
    for page in (plain, rival):
        join(page, suite, event_id)
        come_in(page)
        page.goto(f"{suite.url}/e/{event_id}?section=A")
        page.locator("input[value=A-1-1]").check()
    for page in (rival, plain):
        page.get_by_role("button", name="Hold these tickets").click()
    expect_held(rival, 1)
    sync_api.expect(plain.get_by_role("alert").first).to_contain_text("At least one of these seats was taken")

    def is_gone() -> bool:
        plain.goto(f"{suite.url}/e/{event_id}?section=A")
        disabled: bool = plain.locator("input[value=A-1-1]").is_disabled()
        return disabled

    until(is_gone, what="the taken seat")
    other.close()


@pytest.mark.parametrize("way", ["slow", "timeout_after_success", "error_then_ok"])
def test_each_test_payment_ends_with_tickets(plain: Any, suite: RunningSuite, way: str) -> None:
    join(plain, suite, on_sale(suite))
    come_in(plain)
    hold_best(plain, 1)
    pay(plain, f"sandbox:{way}")
    expect_tickets(plain, suite)


def test_a_declined_card_is_tried_again_by_the_providers_page(plain: Any, suite: RunningSuite) -> None:
    join(plain, suite, on_sale(suite))
    come_in(plain)
    hold_best(plain, 1)
    pay(plain, "sandbox:decline")
    expect_face(plain, "declined")
    sync_api.expect(plain.locator("#plain-order")).to_contain_text("Card declined.")
    order_url = plain.url
    plain.locator("#plain-method").select_option("sandbox:redirect")
    plain.get_by_role("button", name="Try the payment again").click()
    expect_face(plain, "act")
    plain.get_by_role("link", name="Continue to the payment page").click()
    plain.get_by_role("button", name="Pay").click()
    plain.wait_for_url(re.compile(re.escape(order_url)))
    expect_tickets(plain, suite)


def test_a_fan_cancels_an_order_that_is_not_paid(plain: Any, suite: RunningSuite) -> None:
    join(plain, suite, on_sale(suite))
    come_in(plain)
    hold_best(plain, 1)
    pay(plain, "sandbox:decline")
    expect_face(plain, "declined")
    plain.locator("summary", has_text="Cancel this order").click()
    plain.get_by_role("button", name="Cancel this order").click()
    expect_face(plain, "cancelled")


def test_a_promo_code_changes_the_bill_and_a_wrong_one_is_said(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite)
    with operator(suite) as admin:
        admin.put(f"/admin/orders/events/{event_id}/promo-codes/EARLY", json={"percent": 50}).raise_for_status()
    join(plain, suite, event_id)
    come_in(plain)
    hold_best(plain, 1)
    for code, problems in (("NOPE", 1), ("EARLY", 0)):
        plain.locator("#plain-promo").fill(code)
        plain.get_by_role("button", name="Apply").click()
        sync_api.expect(plain.locator(".plain-problem")).to_have_count(problems)
    sync_api.expect(plain.locator(".plain-held .bill")).to_contain_text("Promo code EARLY")
    price = plain.locator("form[action='/orders'] .primary").inner_text()
    pay(plain)
    expect_tickets(plain, suite)
    assert plain.locator(".total strong").first.inner_text() in price


def test_a_lane_opens_for_its_code_and_a_wrong_one_is_said(plain: Any, suite: RunningSuite) -> None:
    lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "weight": 3, "code_required": True}]
    event_id = on_sale(suite, room={"lanes": lanes, "max_active": 0})
    with operator(suite) as admin:
        [code] = admin.post(f"/admin/queue/events/{event_id}/codes", json={"lane": 1}).json()["codes"]
    open_lobby(plain, suite, event_id)
    sync_api.expect(plain.locator("#code-note")).to_contain_text("Club")
    plain.locator("#code").fill("WRONG-CODE")
    plain.locator("#join").click()
    sync_api.expect(plain.get_by_role("alert").first).to_contain_text("This code opens no lane")
    plain.locator("#code").fill(code)
    plain.locator("#join").click()
    sync_api.expect(plain.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert code not in plain.url


def test_a_sold_out_event_says_so_and_takes_nobody(plain: Any, suite: RunningSuite) -> None:
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 1, "price_minor": 100}
    event_id = on_sale(suite, sections=[floor])
    join(plain, suite, event_id)
    come_in(plain)
    hold_best(plain, 1)
    pay(plain)
    expect_tickets(plain, suite)
    plain.context.clear_cookies()

    def is_sold_out() -> bool:
        plain.goto(f"{suite.url}/e/{event_id}")
        title: str = plain.locator("#lobby-title").inner_text()
        return title == "Sold out"

    until(is_sold_out, what="the end of the sale")
    sync_api.expect(plain.locator("#join")).to_be_hidden()
    sync_api.expect(plain.locator("#section-GA1 .left")).to_have_text("Sold out")


def test_a_session_that_ended_leads_back_to_the_line(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite, room={**ROOM, "session_s": 10})
    join(plain, suite, event_id)
    come_in(plain)

    def has_ended() -> bool:
        plain.goto(f"{suite.url}/e/{event_id}")
        ended: bool = plain.locator("[data-step=ended]").count() == 1
        return ended

    until(has_ended, what="the end of the session", timeout_s=60)
    sync_api.expect(plain.locator("#plain-title")).to_have_text("Your time to choose has run out")
    plain.get_by_role("button", name="Join again").click()
    plain.locator("form[action$='/pass'] button").click(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(plain.locator("#plain-quantity")).to_be_visible()


def test_a_fan_leaves_the_line_and_may_join_again(plain: Any, suite: RunningSuite) -> None:
    event_id = on_sale(suite, room={"max_active": 0})
    join(plain, suite, event_id)
    sync_api.expect(plain.locator("#join-seq")).to_have_text("1")
    plain.locator("summary", has_text="Leave the line").click()
    plain.get_by_role("button", name="Leave the line").click()
    sync_api.expect(plain.locator("#join")).to_be_visible()
    plain.locator("#join").click()
    sync_api.expect(plain.locator("#join-seq")).to_have_text("2")


@pytest.mark.parametrize(("button", "bought_by"), [("taken", "ada@gmail.com"), ("kept", "ada@gmial.com")])
def test_a_doubtful_address_is_asked_about_and_can_be_corrected(
    plain: Any, suite: RunningSuite, button: str, bought_by: str
) -> None:
    event_id = on_sale(suite)
    join(plain, suite, event_id)
    come_in(plain)
    hold_best(plain)
    plain.locator("#plain-name").fill("Ada Lovelace")
    plain.locator("#plain-email").fill("ada@gmial.com")
    plain.locator("form[action='/orders'] .primary").first.click()
    question = words("en")("email_meant", email="ada@gmail.com")
    sync_api.expect(plain.locator(".email-meant legend")).to_have_text(question)
    sync_api.expect(plain.locator("#plain-name")).to_have_value("Ada Lovelace")
    plain.locator(f"[name=email_{button}]").click()
    plain.wait_for_url("**/o/*")
    expect_face(plain, "confirmed")
    mails = plain.locator("#plain-mails")
    sync_api.expect(mails).to_have_text(words("en")("address_mails_to", email=bought_by))
    plain.locator("#plain-address summary").click()
    plain.locator("#plain-email").fill("ada@hotnail.com")
    plain.locator("form[action$='/email'] .quiet").first.click()
    plain.locator("[name=email_taken]").click()
    sync_api.expect(mails).to_have_text(words("en")("address_mails_to", email="ada@hotmail.com"))
