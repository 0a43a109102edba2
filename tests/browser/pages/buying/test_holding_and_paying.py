"""Choosing, holding and paying: times and prices of an event, groups, the bill, codes, refusals, doubtful addresses,
and answers that never came; the order's page while it is paid, and finding orders again: the list, the links by mail,
a foreign order.
"""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import words
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import DONE, NO_PLACE, RecordedSite
from tests.browser.recorded.steps import REFERENCE, RESERVATION_ID, come_in
from tests.browser.states import DECLINED, ON_PROVIDER_PAGE
from tests.browser.steps import hold, pay, select_ga_ticket
from tests.support.browser import NewPage

QUEUE, RESERVATIONS = "/events/hall/queue", "POST /events/hall/reservations"
BILL = [
    {"kind": "discount", "name": "EARLY", "percent": "20", "amount_minor": -600, "included": False},
    {"kind": "fee", "name": "Booking fee", "percent": None, "amount_minor": 150, "included": False},
    {"kind": "tax", "name": "VAT", "percent": "19", "amount_minor": 407, "included": True},
]


def refusal(slug: str, **members: Any) -> dict[str, Any]:
    return problem(slug, f"It is {slug}.", **members)


@pytest.fixture
async def held(page: Any, site: RecordedSite) -> Any:
    """The page of a fan who holds one ticket."""
    await come_in(page, site)
    await select_ga_ticket(page)
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    return page


async def test_the_best_seats_are_asked_for_as_chosen_and_given_back(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await page.locator("#best-quantity").select_option("3")
    await page.locator("#best-where").select_option(label="Block B")
    await page.locator("#best-find").click()
    await expect(page.locator("#held-tickets li span")).to_have_text([f"Block B, row 1, seat {n}" for n in (1, 2, 3)])
    assert site.bodies(RESERVATIONS) == [{"best_available": {"quantity": 3, "split": False, "section_id": "B"}}]
    await page.locator("#give-back").click()
    await expect(page.locator("#trouble-text")).to_have_text("You gave your tickets back.")
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")


@pytest.mark.parametrize(("refused", "told"), [
    (refusal("sold-out", available={"GA1": 2}), r"^Only \W*2\W* of these tickets are left in \W*Floor\W*\.$"),
    (refusal("no-adjacent-seats", together=3), "3"),
    (refusal("limit-exceeded", limit="tickets_per_order", allowed=6, used=0), "6 tickets each"),
    (refusal("already-bought"), "It is already-bought."),
], ids=["sold out", "not together", "limit", "another"])  # fmt: skip
async def test_what_is_refused_is_told_in_words(page: Any, site: RecordedSite, refused: Any, told: str) -> None:
    await come_in(page, site)
    site.answers[RESERVATIONS] = refused
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_have_text(re.compile(told))
    await expect(page.locator("#choosing")).to_be_visible()


async def test_tickets_are_returned_one_by_one(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    for _ in range(2):
        await select_ga_ticket(page)
    await page.locator("#section-A button").click()
    await page.locator("#seats .seat").first.click()
    await hold(page)
    tickets = page.locator("#held-tickets li span")
    await expect(tickets).to_have_text(["Block A, row 1, seat 1", "2 × Floor"])
    await page.get_by_role("button", name="Remove one ticket for Floor", exact=True).click()
    await expect(tickets).to_have_text(["Block A, row 1, seat 1", "1 × Floor"])
    await expect(page.locator("#held-total")).to_have_text("€120.00")
    await expect(page.locator("#announcer")).to_have_text("Removed: one ticket for Floor. 2 tickets left.")
    site.answers[f"POST /events/hall/reservations/{RESERVATION_ID}/keep"] = refusal("payment-in-progress")
    await page.get_by_role("button", name="Remove Floor", exact=True).click()
    await expect(page.locator("#trouble-text")).to_have_text("It is payment-in-progress.")
    await expect(tickets).to_have_count(2)


async def test_a_hold_survives_a_reload_and_its_release_returns_to_the_choice(held: Any) -> None:
    await held.reload()
    await expect(held.locator("#held-tickets li span")).to_have_text(["1 × Floor"])
    await held.locator("#give-back").click()
    await expect(held.locator("#choosing")).to_be_visible()
    await expect(held.locator("#basket-count")).to_have_text("Nothing picked yet")


async def test_a_promo_code_changes_the_bill_and_a_wrong_one_nothing(held: Any, site: RecordedSite) -> None:
    quote = site.answers["POST /orders/quote"]
    site.answers["POST /orders/quote"] = refusal("promo-code-not-valid")
    await held.locator("#promo").fill("nonsense")
    await held.locator("#promo-apply").click()
    await expect(held.locator("#promo-note")).to_have_text("It is promo-code-not-valid.")
    await expect(held.locator("#held-total")).to_have_text("€30.00")
    site.answers["POST /orders/quote"] = lambda asked: quote(asked) | {"total_minor": 2550, "extras": BILL}
    await held.locator("#promo").fill("early")
    await held.locator("#promo-apply").click()
    await expect(held.locator("#held-total")).to_have_text("€25.50")
    lines = [" ".join(line.split()) for line in await held.locator("#bill li").all_inner_texts()]
    assert lines[1:] == ["Promo code EARLY (20 %) -€6.00", "Booking fee €1.50", "Includes VAT (19 %) €4.07"]
    await pay(held)
    assert [order["promo_code"] for order in site.bodies("POST /orders")] == ["early"]


async def test_what_costs_nothing_needs_no_payment(held: Any, site: RecordedSite) -> None:
    quote = site.answers["POST /orders/quote"]
    site.answers["POST /orders/quote"] = lambda asked: quote(asked) | {"total_minor": 0}
    await held.locator("#promo").fill("FREE")
    await held.locator("#promo-apply").click()
    await expect(held.locator("#pay")).to_have_text("Get the tickets")
    await expect(held.locator("#method")).to_be_hidden()
    await pay(held, method=None)
    assert site.bodies("POST /orders")[0]["expected_total_minor"] == 0


@pytest.mark.parametrize(("button", "bought_by"), [("#email-take", "ada@gmail.com"), ("#email-keep", "ada@gmial.com")])
async def test_a_fan_is_asked_once_about_a_doubtful_address(
    held: Any, site: RecordedSite, button: str, bought_by: str
) -> None:
    accepted = site.answers["POST /orders"]
    doubt = refusal("email-likely-mistyped", suggestion="ada@gmail.com")
    site.answers["POST /orders"] = lambda asked: (
        doubt if asked.body["customer"]["email"] == "ada@gmial.com" and "check_spelling" in asked.body["customer"]
        else accepted
    )  # fmt: skip
    await held.locator("#email").fill("ada@gmial.com")
    await held.locator("#pay").click()
    await expect(held.locator("#email-meant-text")).to_have_text(words("en")("email_meant", email="ada@gmail.com"))
    await held.locator(button).click()
    await held.wait_for_url("**/o/*")
    assert site.bodies("POST /orders")[-1]["customer"]["email"] == bought_by


async def test_a_domain_without_a_dot_is_not_sent(held: Any, site: RecordedSite) -> None:
    await held.locator("#email").fill("ada@gmial")
    await held.locator("#pay").click()
    assert await held.locator("#email").evaluate("field => field.validity.patternMismatch")
    assert site.bodies("POST /orders") == []


async def test_an_order_without_an_answer_is_sent_again_unchanged(held: Any, site: RecordedSite) -> None:
    await held.route("**/orders", lambda route: route.abort(), times=1)
    keys: list[str] = []

    def note(sent: Any) -> None:
        if sent.url.endswith("/orders"):
            keys.append(sent.headers["idempotency-key"])

    held.on("request", note)
    await held.locator("#pay").click()
    await held.wait_for_url("**/o/*")
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_another_price_is_shown_before_it_is_paid(held: Any, site: RecordedSite) -> None:
    accepted = site.answers["POST /orders"]
    quote: dict[str, Any] = {"total_minor": 3300, "currency": "EUR", "lines": [], "extras": []}
    site.answers["POST /orders"] = refusal("price-changed", **quote)
    await held.locator("#pay").click()
    await expect(held.locator("#trouble-text")).to_contain_text("€33.00")
    site.answers["POST /orders"] = accepted
    await pay(held)
    assert [order["expected_total_minor"] for order in site.bodies("POST /orders")] == [3000, 3300]


async def test_an_expired_hold_leads_back_to_the_choice(held: Any, site: RecordedSite) -> None:
    site.answers["POST /orders"] = refusal("hold-expired")
    await held.locator("#pay").click()
    await expect(held.locator("#choosing")).to_be_visible()
    await expect(held.locator("#trouble-text")).to_have_text("It is hold-expired.")


# -- what is asked and shown before ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event_id", "asked"), [("floor", False), ("hall", True)])
async def test_groups_are_offered_only_where_there_are_seats(
    page: Any, site: RecordedSite, event_id: str, asked: bool
) -> None:
    await come_in(page, site, event_id)
    await expect(page.locator("#best-where option")).not_to_have_count(1)
    await expect(page.locator("#best-groups")).to_be_visible(visible=asked)


async def test_the_page_shows_the_venues_time_and_all_in_prices_by_level(new_page: NewPage, site: RecordedSite) -> None:
    page = await new_page(timezone_id="America/Bogota")
    await come_in(page, site, "orchestra")
    await expect(page.locator("#event-time")).to_have_text("05:00 Japan Standard Time")
    await expect(page.locator("#event-own")).to_contain_text("15:00 Colombia Standard Time")
    await expect(page.locator("#event-from")).to_have_text("from €70.00")
    await expect(page.locator("#on-top")).to_contain_text("Booking fee €5.00 per ticket")
    await expect(page.locator("#section-A .price")).to_have_text("from €315.00")
    await page.locator("#section-A button").click()
    await expect(page.locator("#price-legend li")).to_have_text(["Front: €415.00", "€315.00"])
    seats = page.get_by_role("grid").get_by_role("gridcell")
    await expect(seats).to_have_count(36)
    first, last = seats.first, seats.last
    await expect(first).to_have_attribute("title", "Row 1, seat 1, €415.00, available")
    styles = [
        await seat.evaluate("seat => getComputedStyle(seat).background + getComputedStyle(seat).borderColor")
        for seat in (first, last)
    ]
    assert styles[0] != styles[1]
    await last.click()
    await expect(last).to_have_attribute("aria-selected", "true")
    await expect(page.locator("#basket-total")).to_have_text("€315.00")
    await hold(page)
    await expect(page.locator("#held-total")).to_have_text("€315.00")


ORDER, PENDING = f"/orders/{REFERENCE}", {"status": "pending", "confirmed_at": None, "fulfilled_at": None}


async def open_order(page: Any, site: RecordedSite, **changes: Any) -> None:
    site.change(f"GET {ORDER}", **changes)
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await expect(page.locator("#order")).to_be_visible()


async def test_a_declined_card_is_followed_by_another(page: Any, site: RecordedSite) -> None:
    confirmed = dict(site.answers[f"GET {ORDER}"])
    await open_order(page, site, progress="your-turn", attempt=DECLINED, **PENDING)
    await expect(page.locator("#again")).to_be_hidden()
    await page.locator("#method").select_option("ok")
    site.answers |= {f"POST {ORDER}/payments": site.answers["POST /orders"], f"GET {ORDER}": confirmed}
    await page.locator("#pay-again").click()
    await expect(page.locator("#order")).to_have_attribute("data-face", "confirmed")
    assert site.bodies(f"POST {ORDER}/payments")[0]["payment"]["method"] == "ok"
    await expect(page.locator("#tickets li")).to_have_count(3)


async def test_the_providers_page_is_one_press_away(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, progress="your-turn", attempt=ON_PROVIDER_PAGE, **PENDING)
    await expect(page.locator("#act")).to_have_attribute("href", ON_PROVIDER_PAGE["checkout_url"])


async def test_a_cancelled_order_leads_back_to_the_event(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, progress="your-turn", attempt=DECLINED, **PENDING)
    site.answers[f"POST {ORDER}/cancel"] = site.change(f"GET {ORDER}", status="cancelled", progress=None)
    await page.locator("#cancel").click()
    await expect(page.locator("#order")).to_have_attribute("data-face", "cancelled")
    await page.locator("#again").click()
    await page.wait_for_url("**/e/hall")


async def test_the_steps_of_a_payment_move_nothing_below(page: Any, site: RecordedSite) -> None:
    steps = {"waiting": "Step 1 of 3", "paying": "Step 2 of 3", "confirming": "Step 3 of 3", "cancelling": "We ask"}
    await page.set_viewport_size({"width": 480, "height": 900})
    tops = set()
    for progress, text in steps.items():
        await open_order(page, site, progress=progress, attempt=None, **PENDING)
        await expect(page.locator("#progress")).to_contain_text(text)
        tops.add((await page.locator(".order-facts").bounding_box())["y"])
    assert len(tops) == 1


async def test_the_address_is_corrected(page: Any, site: RecordedSite) -> None:
    await open_order(page, site)
    meant = problem("email-likely-mistyped", suggestion="ada@hotmail.com")
    changed = site.answers[f"GET {ORDER}"] | {"customer": {"name": "Ada", "email": "ada@hotmail.com"}}
    site.answers[f"POST {ORDER}/email"] = lambda asked: meant if asked.body["email"] == "ada@hotnail.com" else changed
    await page.locator("#address-change summary").click()
    await page.locator("#email").fill("ada@hotnail.com")
    await page.locator("#address-save").click()
    await page.locator("#email-take").click()
    await expect(page.locator("#address-text")).to_have_text(words("en")("address_mails_to", email="ada@hotmail.com"))


async def test_a_browser_lists_its_orders(page: Any, site: RecordedSite) -> None:
    await page.goto(f"{site.url}/o")
    entry = page.locator("#orders a")
    await expect(entry).to_contain_text(f"confirmed · €210.00 · {REFERENCE}")
    assert [*await layout_problems(page), *await axe_problems(page)] == []
    await entry.click()
    await expect(page.locator("#order-event")).to_have_text("A show")


@pytest.mark.parametrize("language", ["de", "ar"])
async def test_a_browser_without_keys_asks_for_the_links(page: Any, site: RecordedSite, language: str) -> None:
    text = words(language)
    site.answers |= {"GET /orders": NO_PLACE, "POST /orders/links": DONE}
    await page.set_viewport_size({"width": 320, "height": 800})
    await page.goto(f"{site.url}/o?lang={language}")
    await expect(page.locator("#none")).to_have_text(text("links_none"))
    await page.locator("#email").fill("ada@example.org")
    await page.locator("#links-ask").click()
    await expect(page.locator("#links-sent")).to_be_visible()
    assert site.bodies("POST /orders/links") == [{"email": "ada@example.org"}]
    assert [*await layout_problems(page), *await axe_problems(page)] == []
    site.answers["POST /orders/links"] = problem("mail-disabled")
    await page.locator("#links-ask").click()
    await expect(page.locator("#trouble-text")).to_have_text(text("mail_disabled"))


async def test_a_foreign_order_leads_to_the_list(page: Any, site: RecordedSite) -> None:
    site.answers[f"GET {ORDER}"] = problem("not-found", "No such order.")
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await page.locator("#lost").get_by_role("link", name="Your orders").click()
    await expect(page.get_by_role("heading", name="Your orders")).to_be_visible()
