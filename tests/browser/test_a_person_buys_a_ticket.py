"""One person, one browser: from the catalogue to a confirmed order, and back again after a declined card."""

import re
import uuid
from typing import Any, Protocol

import httpx
from playwright import sync_api

from tests.support.browser import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM

TURN_MS = 30_000


class Suite(Protocol):
    url: str
    admin_key: str


def come_to_choose(page: Any, suite: Suite) -> None:
    page.goto(f"{suite.url}/")
    page.locator("#events a[href='/e/arena-2026']").click()
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=TURN_MS)


def pick_a_seat(page: Any, section_id: str) -> str:
    """The name the basket gives to the seat."""
    page.locator(f"#section-{section_id} button").click()
    page.locator("#seats .seat[data-status=available]").first.click()
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    name: str = page.locator("#basket-list").inner_text()
    page.locator("#seats-back").click()
    return name


def hold_and_pay(page: Any, method: str) -> None:
    page.locator("#hold").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    page.locator("#method").select_option(method)
    page.locator("#pay").click()
    page.wait_for_url("**/o/*")


def test_a_person_buys_a_seat_and_a_place_on_the_floor(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    seat = pick_a_seat(page, "A")
    page.get_by_role("button", name=re.compile("One more ticket")).first.click()
    sync_api.expect(page.locator("#basket-count")).to_have_text("2 tickets")
    hold_and_pay(page, "ok")
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)
    tickets = page.locator("#tickets li")
    sync_api.expect(tickets).to_have_count(2)
    row_and_number = seat.split(", ", 1)[1]
    sync_api.expect(page.locator("#tickets")).to_contain_text(re.compile(re.escape(row_and_number), re.IGNORECASE))
    reference = page.locator("#reference").inner_text()
    page.reload()
    sync_api.expect(page.locator("#reference")).to_have_text(reference)
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed")
    codes = page.get_by_alt_text(re.compile("to show at the door"))
    sync_api.expect(codes).to_have_count(2)
    sync_api.expect(codes.first).to_have_js_property("complete", True)
    assert codes.first.evaluate("image => image.naturalWidth") > 0
    opens_elsewhere(page, suite, reference)


def opens_elsewhere(page: Any, suite: Suite, reference: str) -> None:
    """By the link of a mail, in a browser that has never seen the order."""
    [key] = [cookie["value"] for cookie in page.context.cookies() if cookie["name"] == f"onsale_order_{reference}"]
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"{suite.url}/o/{reference}#key={key}")
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed")
    assert "#" not in page.url
    page.reload()
    sync_api.expect(page.locator("#reference")).to_have_text(reference)


def test_a_person_whose_card_is_declined_pays_with_another(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    pick_a_seat(page, "A")
    hold_and_pay(page, "decline")
    sync_api.expect(page.locator("#retry")).to_be_visible(timeout=TURN_MS)
    page.locator("#method").select_option("ok")
    page.locator("#pay-again").click()
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)


def test_a_person_pays_on_the_providers_page_and_comes_back(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    pick_a_seat(page, "A")
    hold_and_pay(page, "redirect")
    ordered_at = page.url
    page.locator("#act").click()
    page.get_by_role("button", name="Pay").click()
    page.wait_for_url(ordered_at)
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)


def test_a_person_whose_order_is_over_may_choose_again(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    pick_a_seat(page, "A")
    hold_and_pay(page, "decline")
    sync_api.expect(page.locator("#retry")).to_be_visible(timeout=TURN_MS)
    sync_api.expect(page.locator("#again")).to_be_hidden()
    page.locator("#cancel").click()
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "cancelled", timeout=TURN_MS)
    page.locator("#again").click()
    page.wait_for_url("**/e/arena-2026")


def test_a_reload_keeps_the_tickets_held_and_giving_them_back_lets_choose_again(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    pick_a_seat(page, "A")
    page.locator("#hold").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    page.reload()
    sync_api.expect(page.locator("#held")).to_be_visible()
    page.locator("#give-back").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible()
    sync_api.expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")


def test_a_person_takes_the_best_there_is(page: Any, suite: Suite) -> None:
    come_to_choose(page, suite)
    page.locator("#best-quantity").select_option("3")
    page.locator("#best-where").select_option(label="Block B")
    page.locator("#best-find").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    seats = page.locator("#held-tickets li").all_inner_texts()
    places = [re.fullmatch(r"Block B, row (\d+), seat (\d+)", seat) for seat in seats]
    rows, numbers = zip(*((found[1], int(found[2])) for found in places if found), strict=True)
    assert (len(set(rows)), numbers) == (1, tuple(range(numbers[0], numbers[0] + 3)))
    page.locator("#give-back").click()


def presale(suite: Suite) -> tuple[str, str]:
    """An open event whose presale lane asks for a code; the event and a code."""
    event_id = f"presale-{uuid.uuid4().hex[:8]}"
    lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "weight": 3, "code_required": True}]
    event = {
        "event_id": event_id, "name": "A presale", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z", "room": {"lanes": lanes, "max_active": 0},
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 100}],
    }  # fmt: skip
    headers = {"authorization": f"Bearer {suite.admin_key}"}
    with httpx.Client(base_url=suite.url, headers=headers) as operator:
        for service in ("inventory", "orders", "queue"):
            operator.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        at = f"/admin/queue/events/{event_id}"
        operator.post(f"{at}/room/open", json={}).raise_for_status()
        [code] = operator.post(f"{at}/codes", json={"lane": 1}).json()["codes"]
    return event_id, code


def test_a_person_with_a_code_stands_in_the_presale_line(page: Any, suite: Suite) -> None:
    event_id, code = presale(suite)
    page.goto(f"{suite.url}/e/{event_id}")
    page.get_by_label("Code, if you have one", exact=True).fill("not a code of ours")
    page.locator("#join").click()
    sync_api.expect(page.locator("#code-error")).to_contain_text("opens no lane here")
    page.get_by_label("Code, if you have one", exact=True).fill(code.lower())
    page.get_by_label("Code, if you have one", exact=True).press("Enter")
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=TURN_MS)
    sync_api.expect(page.locator("#waiting")).to_contain_text("Your number is 1 in the line “Club”")
    assert code not in page.url


def priced(suite: Suite) -> str:
    """An open event with fees and taxes and two codes: EARLY takes 20 % off, FREE everything."""
    event_id = f"priced-{uuid.uuid4().hex[:8]}"
    event = {
        "event_id": event_id, "name": "A play", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z",
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 5000}],
        "fees": [{"name": "Booking fee", "per": "ticket", "amount_minor": 150},
                 {"name": "Order fee", "per": "order", "percent": "2.5"}],
        "taxes": [{"name": "VAT", "percent": 19}],
    }  # fmt: skip
    headers = {"authorization": f"Bearer {suite.admin_key}"}
    with httpx.Client(base_url=suite.url, headers=headers) as operator:
        for service in ("inventory", "orders", "queue"):
            operator.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        operator.post(f"/admin/queue/events/{event_id}/room/open", json={}).raise_for_status()
        codes = f"/admin/orders/events/{event_id}/promo-codes"
        operator.put(f"{codes}/EARLY", json={"percent": 20}).raise_for_status()
        operator.put(f"{codes}/FREE", json={"percent": 100}).raise_for_status()
    return event_id


def test_a_person_sees_every_fee_and_pays_less_with_a_code(page: Any, suite: Suite) -> None:
    page.goto(f"{suite.url}/e/{priced(suite)}")
    sync_api.expect(page.locator("#event-from")).to_have_text("from €52.75")
    sync_api.expect(page.locator("#section-GA1 .price")).to_have_text("€52.75")
    sync_api.expect(page.locator("#on-top")).to_contain_text("Booking fee €1.50 per ticket")
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=TURN_MS)
    page.get_by_role("button", name=re.compile("One more ticket")).first.click()
    sync_api.expect(page.locator("#basket-total")).to_have_text("€52.75")
    page.locator("#hold").click()
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
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@example.org")
    page.locator("#pay").click()
    page.wait_for_url("**/o/*")
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)
    sync_api.expect(page.locator("#total")).to_have_text("€42.50")
    sync_api.expect(page.locator("#bill li")).to_have_count(5)


def test_a_person_with_a_code_for_everything_pays_nothing(page: Any, suite: Suite) -> None:
    page.goto(f"{suite.url}/e/{priced(suite)}")
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=TURN_MS)
    page.get_by_role("button", name=re.compile("One more ticket")).first.click()
    page.locator("#hold").click()
    page.locator("#promo").fill("FREE")
    page.locator("#promo-apply").click()
    sync_api.expect(page.locator("#pay")).to_have_text("Get the tickets")
    sync_api.expect(page.locator("#method")).to_be_hidden()
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@example.org")
    page.locator("#pay").click()
    page.wait_for_url("**/o/*")
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)
