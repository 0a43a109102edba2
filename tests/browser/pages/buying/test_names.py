"""Names on tickets: typed before the payment, one for each ticket or one for all, and changed on the order's page."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import LANGUAGES, words
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import REFERENCE, RESERVATION_ID, come_in
from tests.browser.steps import hold, select_ga_ticket

ORDER = f"/orders/{REFERENCE}"
UNTIL = "2030-01-01T12:00:00Z"
NAMES = ["Ada Lovelace", "Grace Hopper"]
FIELDS = "#names-fields input"


def asks(site: RecordedSite, names: str) -> None:
    """Quotes of what is held ask for these names."""
    quote: Callable[[Any], Any] = site.answers["POST /orders/quote"]
    held: Callable[[Any], Any] = site.answers[f"GET /events/hall/reservations/{RESERVATION_ID}"]
    price = {"returned": 0, "unit_price_minor": 100, "paid_minor": 100}

    def quoted(asked: Any) -> Any:
        now = held(None)
        seats = [{"section_id": seat[0], "seat_id": seat, "quantity": 1, **price} for seat in now["seats"]]
        lines = seats + [{**part, "seat_id": None, **price} for part in now["ga"]]
        return quote(asked) | {"names": names, "lines": lines}

    site.answers["POST /orders/quote"] = quoted


@pytest.fixture
async def named(page: Any, site: RecordedSite) -> Any:
    """The page of a fan who holds a seat and two floor tickets, each of which needs a name."""
    site.change("GET /events/hall", names="ticket", names_until=UNTIL)
    await come_in(page, site)
    asks(site, "ticket")
    for _ in range(2):
        await select_ga_ticket(page)
    await page.locator("#section-A button").click()
    await page.locator("#seats .seat").first.click()
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    return page


async def test_each_ticket_has_a_field_that_says_which_it_is(named: Any, site: RecordedSite) -> None:
    text = words("en")
    labels = [
        text("name_on_ticket", n=n, place=place)
        for n, place in enumerate(("Block A, row 1, seat 1", "Floor", "Floor"), start=1)
    ]
    await expect(named.locator("#names-fields label")).to_have_text(labels)
    await expect(named.locator("#names-note")).to_contain_text("You can change names until Tue, 1 January 2030")
    fields = named.locator(FIELDS)
    assert [await field.get_attribute("autocomplete") for field in await fields.all()] == ["name", "off", "off"]
    await named.get_by_label(labels[0]).fill(" Ada Lovelace ")
    await named.locator("#pay").click()
    await expect(fields.nth(1)).to_be_focused()
    assert site.bodies("POST /orders") == [], "a field that must be filled in is empty"
    await fields.nth(1).fill("Grace Hopper")
    await fields.nth(2).fill("شهرزاد")
    await named.locator("#pay").click()
    await named.wait_for_url("**/o/*")
    [sent] = site.bodies("POST /orders")
    assert (sent["names"], sent["customer"]["name"]) == (["Ada Lovelace", "Grace Hopper", "شهرزاد"], "Ada Lovelace")


async def test_a_blank_name_is_told_beside_its_field(named: Any, site: RecordedSite) -> None:
    fields = named.locator(FIELDS)
    for field, name in zip(await fields.all(), ["Ada", "  ", "Bob"], strict=True):
        await field.fill(name)
    await named.locator("#pay").click()
    await expect(fields.nth(1)).to_be_focused()
    await expect(fields.nth(1)).to_have_accessible_description(words("en")("name_missing"))
    await expect(fields.nth(1)).to_have_attribute("aria-invalid", "true")
    assert [*await layout_problems(named), *await axe_problems(named)] == []
    await fields.nth(1).press_sequentially("Grace")
    await expect(named.locator("#name-2-error")).to_be_hidden()
    await named.locator("#pay").click()
    await named.wait_for_url("**/o/*")
    assert site.bodies("POST /orders")[0]["names"] == ["Ada", "Grace", "Bob"]


async def test_what_was_typed_stays_with_its_ticket(named: Any, site: RecordedSite) -> None:
    for field, name in zip(await named.locator(FIELDS).all(), ["Ada", "Grace", "Bob"], strict=True):
        await field.fill(name)
    site.answers["POST /orders"], accepted = problem("promo-code-not-valid"), site.answers["POST /orders"]
    await named.locator("#pay").click()
    await expect(named.locator("#trouble")).to_be_visible()
    await expect(named.locator(FIELDS).nth(2)).to_have_value("Bob")
    await named.get_by_role("button", name="Remove Block A, row 1, seat 1", exact=True).click()
    await expect(named.locator(FIELDS)).to_have_count(2)
    values = [await field.input_value() for field in await named.locator(FIELDS).all()]
    assert values == ["Grace", "Bob"]
    site.answers["POST /orders"] = accepted
    await named.locator("#pay").click()
    await named.wait_for_url("**/o/*")
    assert site.bodies("POST /orders")[-1]["names"] == ["Grace", "Bob"]


async def test_a_page_that_did_not_know_asks_once_it_is_told(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await select_ga_ticket(page)
    await hold(page)
    await expect(page.locator("#names")).to_be_hidden()
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    asks(site, "ticket")
    site.answers["POST /orders"] = problem("ticket-names-refused", "Ticket 1 of 1 (GA1) has no name.")
    await page.locator("#pay").click()
    await expect(page.locator("#trouble-text")).to_have_text("Ticket 1 of 1 (GA1) has no name.")
    await expect(page.locator(FIELDS)).to_have_count(1)
    assert "names" not in site.bodies("POST /orders")[0]


async def test_one_name_for_all_is_that_of_the_buyer(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    asks(site, "order")
    await select_ga_ticket(page)
    await hold(page)
    await expect(page.locator("#name")).to_have_accessible_description(words("en")("name_on_all"))
    await expect(page.locator("#names")).to_be_hidden()


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_fields_are_readable_on_a_phone_in_each_language(
    page: Any, site: RecordedSite, language: str
) -> None:
    site.change("GET /events/hall", names="ticket", names_until=UNTIL)
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": site.url}])
    await page.set_viewport_size({"width": 320, "height": 900})
    await come_in(page, site)
    asks(site, "ticket")
    await page.locator("#best-quantity").select_option("2")
    await page.locator("#best-find").click()
    await expect(page.locator(FIELDS)).to_have_count(2)
    await expect(page.locator("#names legend")).to_have_text(words(language)("names_title"))
    await page.locator("#name").fill("Ada")
    await page.locator("#email").fill("ada@example.org")
    for field in await page.locator(FIELDS).all():
        await field.fill(" ")
    await page.locator("#pay").click()
    await expect(page.locator("#name-1-error")).to_have_text(words(language)("name_missing"))
    assert [*await layout_problems(page), *await axe_problems(page)] == []


# -- the order's page --------------------------------------------------------------------------------------------------


async def open_order(
    page: Any, site: RecordedSite, names: str, *, until: str | None = UNTIL, void: int = 0
) -> list[str]:
    """Opens an order of two seats and a floor ticket, the first ones void; answers the ids of its tickets."""
    issued = site.answers[f"GET {ORDER}/tickets"]
    tickets = [
        ticket | {"name": name} | ({"status": "void", "code": None} if n < void else {})
        for n, (ticket, name) in enumerate(zip(issued["tickets"], [*NAMES, "Bob"], strict=True))
    ]
    site.change(f"GET {ORDER}/tickets", tickets=tickets, names=names, names_until=until)
    if names == "ticket":
        named = [
            line | {"names": [{"ticket_id": one["ticket_id"], "name": one["name"], "void": one["status"] == "void"}]}
            for line, one in zip(site.answers[f"GET {ORDER}"]["lines"], tickets, strict=True)
        ]
        site.change(f"GET {ORDER}", lines=named)
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await expect(page.locator("#order")).to_be_visible()
    return [ticket["ticket_id"] for ticket in tickets]


async def test_names_are_shown_and_changed_one_by_one(page: Any, site: RecordedSite) -> None:
    _, second, _ = await open_order(page, site, "ticket")
    await expect(page.locator(".ticket-name")).to_have_text([*NAMES, "Bob"])
    await page.locator("#names-change summary").click()
    label = words("en")("name_on_ticket", n=2, place="Block A, row 1, seat 7")
    field = page.get_by_label(label)
    await expect(field).to_have_value("Grace Hopper")
    await field.fill(" ")
    await page.locator("#names-save").click()
    await expect(field).to_have_accessible_description(words("en")("name_missing"))
    assert [*await layout_problems(page), *await axe_problems(page)] == []
    site.answers[f"POST {ORDER}/names"] = problem("name-change-refused", "It is too late.")
    await field.fill("Mary  Jackson")
    await page.locator("#names-save").click()
    await expect(page.locator("#trouble-text")).to_have_text("It is too late.")
    await expect(field).to_have_value("Mary  Jackson")

    def changed(_: Any) -> Any:
        order, issued = site.answers[f"GET {ORDER}"], site.answers[f"GET {ORDER}/tickets"]
        site.change(f"GET {ORDER}/tickets", tickets=[
            one | ({"name": "Mary Jackson"} if one["ticket_id"] == second else {}) for one in issued["tickets"]
        ])  # fmt: skip
        return site.change(f"GET {ORDER}", lines=[
            line | {"names": [one | ({"name": "Mary Jackson"} if one["ticket_id"] == second else {})
                              for one in line["names"]]} for line in order["lines"]
        ])  # fmt: skip

    site.answers[f"POST {ORDER}/names"] = changed
    await page.locator("#names-save").click()
    await expect(page.locator(".ticket-name")).to_have_text(["Ada Lovelace", "Mary Jackson", "Bob"])
    await expect(page.locator("#trouble-text")).to_have_text(words("en")("names_changed"))
    await expect(field).to_be_hidden()
    assert site.bodies(f"POST {ORDER}/names")[-1] == {"names": {second: "Mary  Jackson"}}
    await page.locator("#names-change summary").click()
    await expect(field).to_have_value("Mary Jackson")
    await page.locator("#names-save").click()
    await expect(field).to_be_hidden()
    assert len(site.bodies(f"POST {ORDER}/names")) == 2, "without a change nothing is sent"


async def test_the_name_of_a_void_ticket_is_shown_and_not_to_be_changed(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, "ticket", void=1)
    await expect(page.locator(".ticket-name")).to_have_count(3)
    await page.locator("#names-change summary").click()
    await expect(page.locator("#names-fields label")).to_have_count(2)


async def test_the_one_name_of_an_order_is_changed(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, "order")
    site.answers[f"POST {ORDER}/names"] = lambda asked: site.change(
        f"GET {ORDER}", customer={"name": asked.body["name"], "email": "ada@example.org"}
    )
    await page.locator("#names-change summary").click()
    await expect(page.locator("#names-note")).to_contain_text(words("en")("name_on_all"))
    await page.locator(FIELDS).fill("Grace Hopper")
    await page.locator("#names-save").click()
    await expect(page.locator("#trouble-text")).to_have_text(words("en")("names_changed"))
    assert site.bodies(f"POST {ORDER}/names") == [{"name": "Grace Hopper"}]


@pytest.mark.parametrize(("names", "until"), [("none", None), ("ticket", "2020-01-01T00:00:00Z")])
async def test_nothing_is_offered_that_cannot_be_done(
    page: Any, site: RecordedSite, names: str, until: str | None
) -> None:
    await open_order(page, site, names, until=until)
    await expect(page.locator("#tickets li")).to_have_count(3)
    await expect(page.locator("#names-change")).to_be_hidden()


@pytest.mark.parametrize("language", ["de", "ar"])
async def test_the_change_is_readable_on_a_phone(page: Any, site: RecordedSite, language: str) -> None:
    await page.set_viewport_size({"width": 320, "height": 900})
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": site.url}])
    await open_order(page, site, "ticket")
    await page.locator("#names-change summary").click()
    await expect(page.locator("#names-change summary")).to_have_text(words(language)("names_change"))
    assert [*await layout_problems(page), *await axe_problems(page)] == []
