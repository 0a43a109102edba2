"""Price types on the fans' pages: each ticket's price is chosen before the hold and changed while it lives, and what
the server refuses is told at the ticket that it names.
"""

import re
from functools import partial
from typing import Any

import pytest
from playwright.async_api import expect

from features.pages.tests.gateway.test_price_types import TYPES as PLAIN_TYPES
from features.pages.tests.gateway.test_price_types import choosing, held
from shared.words.words import LANGUAGES, words
from tests.browser.hall_steps import open_section
from tests.browser.keyboard import tab_to
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import Asked, RecordedSite
from tests.browser.recorded.steps import REFERENCE, RESERVATION_ID, come_in
from tests.browser.steps import hold

EVENT = "/events/family"
RESERVATIONS, TYPES = f"POST {EVENT}/reservations", f"POST {EVENT}/reservations/{RESERVATION_ID}/types"
SEATS = ("A-1-1", "A-2-5", "A-4-1")


async def choose_seats(page: Any, *, seats: tuple[str, ...] = SEATS) -> None:
    await page.locator("#section-A button").click()
    await page.locator("#seats .seat").first.wait_for()
    for seat in seats:
        await page.locator(f"#seats [data-seat={seat}]").click()
    await expect(page.locator("#basket-seats li")).to_have_count(len(seats))


def type_of(page: Any, place: str) -> Any:
    return page.get_by_label(f"Price for Stalls, row {place}", exact=True)


def plus(page: Any, of: str) -> Any:
    return page.get_by_role("button", name=f"One more ticket for {of}", exact=True)


async def test_each_seat_has_the_prices_of_its_place(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await choose_seats(page)
    front, middle, chair = (type_of(page, each) for each in ("1, seat 1", "2, seat 5", "4, seat 1"))
    await expect(front.locator("option")).to_have_text(["Adult · €81.00", "Child · €36.00", "Concession · €65.00"])
    await expect(middle.locator("option")).to_have_text(["Adult · €51.00", "Child · €26.00", "Concession · €41.00"])
    await expect(chair.locator("option").last).to_have_text("Wheelchair · €26.00")
    await expect(page.locator("#basket-total")).to_have_text("€183.00")
    await front.select_option("child")
    await middle.select_option("senior")
    await chair.select_option("chair")
    await expect(page.locator("#basket-total")).to_have_text("€103.00")
    await expect(page.locator("#basket-seats li").nth(1).locator(".type-note")).to_have_text(
        "Show at the door: Pension card"
    )
    await hold(page)
    assert site.bodies(RESERVATIONS) == [
        {"seats": list(SEATS), "types": {"A-1-1": "child", "A-2-5": "senior", "A-4-1": "chair"}}
    ]
    chosen = page.locator("#held-tickets select")
    assert [await chosen.nth(n).input_value() for n in range(3)] == ["child", "senior", "chair"]
    await expect(page.locator("#held-total")).to_have_text("€103.00")


async def test_a_seat_that_is_put_back_loses_its_type(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await choose_seats(page, seats=("A-2-5",))
    await type_of(page, "2, seat 5").select_option("child")
    for _ in range(2):
        await page.locator("#seats [data-seat=A-2-5]").click()
    await expect(type_of(page, "2, seat 5")).to_have_value("adult")
    await expect(page.locator("#basket-total")).to_have_text("€51.00")


async def test_general_admission_is_counted_by_type_up_to_the_limit(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await plus(page, "Gallery · Adult").click()
    for _ in range(2):
        await plus(page, "Gallery · Child").click()
    await expect(page.locator("#basket-list")).to_have_text("1 × Gallery · Adult · 2 × Gallery · Child")
    await expect(page.locator("#basket-total")).to_have_text("€63.00")
    for _ in range(9):
        await plus(page, "Gallery · Concession").click(force=True)
    await expect(page.locator("#basket-count")).to_have_text("8 tickets")
    await hold(page)
    assert site.bodies(RESERVATIONS) == [{"ga": [
        {"section_id": "GA1", "quantity": 1}, {"section_id": "GA1", "quantity": 2, "type_id": "child"},
        {"section_id": "GA1", "quantity": 5, "type_id": "senior"},
    ]}]  # fmt: skip
    await expect(page.locator("#held-tickets li")).to_have_count(8)


async def test_the_best_available_are_asked_for_by_type(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    best = page.locator("#best .type-steps li:visible")
    await expect(best.locator("strong")).to_have_text(["Adult", "Child", "Concession"])
    await expect(best.locator(".type-price")).to_have_text(["from €31.00", "from €16.00", "from €25.00"])
    await plus(page, "The best there is · Child").click()
    await page.locator("#best-where").select_option(label="Stalls")
    await page.locator("#best-find").click()
    await expect(page.locator("#held")).to_be_visible()
    wanted = {"quantity": 3, "types": {"child": 1}, "split": False, "section_id": "A"}
    assert site.bodies(RESERVATIONS) == [{"best_available": wanted}]


async def test_a_code_opens_a_type_and_goes_with_each_request(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await choose_seats(page, seats=("A-2-5",))
    option = type_of(page, "2, seat 5").locator("option[value=member]")
    await expect(option).to_have_count(0)
    await expect(page.locator("#type-code-note")).to_have_text("A code opens: Member.")
    await page.get_by_label("I have a code").fill(" friends26 ")
    await page.get_by_role("button", name="Use code").click()
    await expect(page.locator("#type-code-note")).to_contain_text("You can now choose: Member.")
    await expect(option).to_have_text("Member · €11.00")
    await type_of(page, "2, seat 5").select_option("member")
    refused = problem("price-type-refused", "No.", reason="code", type_id="member", tickets=["A-2-5"])
    holds, site.answers[RESERVATIONS] = site.answers[RESERVATIONS], refused
    await page.locator("#hold").click()
    told = "This code does not open Member. Correct it, or choose another price."
    await expect(page.locator("#type-code-error")).to_have_text(told)
    await expect(page.locator("#basket-seats .field-error")).to_have_text(told)
    site.answers[RESERVATIONS] = holds
    await page.locator("#hold").click()
    await expect(page.locator("#held")).to_be_visible()
    sent = {"seats": ["A-2-5"], "types": {"A-2-5": "member"}, "code": "friends26"}
    assert site.bodies(RESERVATIONS) == [sent, sent]
    await page.locator("#held-tickets select").select_option("adult")
    await expect(page.locator("#held-total")).to_have_text("€51.00")
    assert site.bodies(TYPES) == [{"types": {"A-2-5": "adult"}, "ga": [], "code": "friends26"}]


@pytest.mark.parametrize(("refused", "told"), [
    (problem("price-type-refused", "No.", reason="place", type_id="child", tickets=["A-2-5"]),
     "Child is not sold for this place. Choose another price."),
    (problem("price-type-refused", "No.", reason="lane", type_id="child", tickets=["A-2-5"]),
     "Child is only for fans who came by another line. Choose another price."),
    (problem("price-type-refused", "No.", reason="per-order", type_id="child", tickets=["A-2-5"], allowed=3),
     "At most 3 of Child in one order."),
    (problem("price-type-refused", "No.", reason="companion", type_id="carer", tickets=["A-4-2"], allowed=0),
     "Companion comes only with Wheelchair, one for each: here are 0 of them."),
    (problem("sold-out", "No.", available={"~child": 1}), "Only 1 of Child is left."),
    (problem("sold-out", "No.", available={"~child": 0}), "None of Child is left. Choose another price."),
], ids=["place", "lane", "per order", "companion", "few left", "none left"])  # fmt: skip
async def test_what_is_refused_is_told_at_the_ticket_that_it_names(
    page: Any, site: RecordedSite, refused: Any, told: str
) -> None:
    await come_in(page, site, "family")
    await choose_seats(page, seats=("A-1-1", "A-2-5", "A-4-2"))
    await type_of(page, "2, seat 5").select_option("child")
    await type_of(page, "4, seat 2").select_option("carer")
    site.answers[RESERVATIONS] = refused
    await page.locator("#hold").click()
    await expect(page.locator("#trouble-text")).to_have_text(told)
    at = "4, seat 2" if refused.get("type_id") == "carer" else "2, seat 5"
    await expect(page.locator("#basket-seats .field-error")).to_have_text([told])
    await expect(type_of(page, at)).to_have_attribute("aria-invalid", "true")
    await expect(type_of(page, at)).to_be_focused()
    await type_of(page, at).select_option("adult")
    await expect(page.locator("#basket-seats .field-error")).to_have_count(0)


async def test_types_change_while_the_hold_lives_and_the_new_total_is_told(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    for _ in range(2):
        await plus(page, "Gallery · Adult").click()
    await choose_seats(page, seats=("A-2-5",))
    await hold(page)
    lines = page.locator("#held-tickets li")
    await expect(lines).to_have_count(3)
    await lines.nth(0).locator("select").select_option("child")
    await expect(page.locator("#announcer")).to_have_text("Stalls, row 2, seat 5: Child. You pay €88.00.")
    await expect(lines.nth(0).locator("select")).to_be_focused()
    await lines.nth(2).locator("select").select_option("senior")
    await expect(page.locator("#held-total")).to_have_text("€82.00")
    ga = [
        {"section_id": "GA1", "type_id": "adult", "quantity": 1},
        {"section_id": "GA1", "type_id": "senior", "quantity": 1},
    ]
    assert site.bodies(TYPES)[-1] == {"types": {"A-2-5": "child"}, "ga": ga}
    await page.get_by_role("button", name="Remove Gallery", exact=True).first.click()
    await expect(lines).to_have_count(2)
    kept = site.bodies(f"POST {EVENT}/reservations/{RESERVATION_ID}/keep")[-1]
    assert kept == {"seats": ["A-2-5"], "ga": [{"section_id": "GA1", "type_id": "senior", "quantity": 1}]}
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    await page.locator("#pay").click()
    await page.wait_for_url("**/o/*")
    assert site.bodies("POST /orders")[0]["expected_total_minor"] == 2600 + 2500


async def test_changes_in_quick_succession_all_count(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    for _ in range(3):
        await plus(page, "Gallery · Adult").click()
    await hold(page)
    await page.evaluate("""() => {
        for (const [n, type] of [[0, "child"], [2, "senior"], [1, "child"]]) {
            const select = document.querySelectorAll("#held-tickets select")[n];
            select.value = type;
            select.dispatchEvent(new Event("change"));
        }
    }""")
    await expect(page.locator("#held-total")).to_have_text("€57.00")
    assert site.bodies(TYPES)[-1]["ga"] == [
        {"section_id": "GA1", "type_id": "child", "quantity": 2},
        {"section_id": "GA1", "type_id": "senior", "quantity": 1},
    ]


async def test_a_refused_change_keeps_the_type_and_says_why(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await choose_seats(page, seats=("A-4-1", "A-4-2"))
    await type_of(page, "4, seat 1").select_option("chair")
    await type_of(page, "4, seat 2").select_option("carer")
    await hold(page)
    await expect(page.locator("#held-total")).to_have_text("€26.00")
    refused = problem("price-type-refused", "No.", reason="companion", type_id="carer", tickets=["A-4-2"], allowed=0)
    site.answers[TYPES] = refused
    selects = page.locator("#held-tickets select")
    await selects.nth(0).select_option("adult")
    told = "Companion comes only with Wheelchair, one for each: here are 0 of them."
    await expect(page.locator("#trouble-text")).to_have_text(told)
    await expect(page.locator("#held-tickets li").nth(1).locator(".field-error")).to_have_text(told)
    await expect(selects.nth(0)).to_have_value("chair")
    await expect(page.locator("#held-total")).to_have_text("€26.00")


async def test_a_type_of_which_none_is_left_cannot_be_chosen(page: Any, site: RecordedSite) -> None:
    site.change(f"GET {EVENT}/sections", types=[{"type_id": "child", "available": 0}])
    await come_in(page, site, "family")
    await expect(plus(page, "Gallery · Child")).to_have_attribute("aria-disabled", "true")
    await choose_seats(page, seats=("A-2-5",))
    assert await type_of(page, "2, seat 5").locator("option[value=child]").is_disabled()


async def test_a_type_of_another_lane_is_not_offered(page: Any, site: RecordedSite) -> None:
    await page.add_init_script("localStorage.setItem('onsale:lane:family', '2')")  # from joining
    await come_in(page, site, "family")
    await choose_seats(page, seats=("A-2-5",))
    await expect(type_of(page, "2, seat 5").locator("option[value=early]")).to_have_text("Early fan · €46.00")


async def test_a_seat_of_the_map_has_the_prices_of_its_row(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-seats option")).to_have_text(
        ["Adult · €81.00", "Child · €36.00", "Concession · €65.00"]
    )


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[] if name in ("en", "ar") else pytest.mark.proof) for name in LANGUAGES]
)
async def test_choosing_types_is_readable_on_a_phone_and_for_a_screen_reader(
    page: Any, site: RecordedSite, language: str
) -> None:
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": site.url}])
    await page.set_viewport_size({"width": 390, "height": 844})
    found: list[str] = []

    async def check(state: str) -> None:
        for width in (320, 390, 1280):
            await page.set_viewport_size({"width": width, "height": 844})
            found.extend(f"{state} at {width} px: {each}" for each in await layout_problems(page))
        await page.set_viewport_size({"width": 390, "height": 844})
        height = await page.evaluate("document.documentElement.scrollHeight")
        await page.set_viewport_size({"width": 390, "height": height})
        found.extend(f"{state}: {each}" for each in [*await contrast_problems(page), *await axe_problems(page)])

    await come_in(page, site, "family")
    await page.locator("#access summary").click()
    await check("choosing")
    await page.locator("#type-code").fill("FRIENDS26")
    await page.locator("#type-code-form button").click()
    await choose_seats(page, seats=("A-1-1", "A-2-5"))
    await check("seats")
    await page.locator("#basket-seats select").nth(1).select_option("senior")
    holds = site.answers[RESERVATIONS]
    site.answers[RESERVATIONS] = problem(
        "price-type-refused", "No.", reason="place", type_id="senior", tickets=["A-2-5"]
    )
    await page.locator("#hold").click()
    text = words(language)
    await expect(page.locator("#trouble-text")).to_have_text(
        re.compile(re.escape(text("refused_place", type="Concession")))
    )
    await check("refused")
    site.answers[RESERVATIONS] = holds
    await page.locator("#hold").click()
    await expect(page.locator("#held")).to_be_visible()
    await check("held")
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[] if name in ("en", "ar") else pytest.mark.proof) for name in LANGUAGES]
)
async def test_the_forms_without_scripts_are_readable(page: Any, site: RecordedSite, language: str) -> None:
    await page.goto(f"{site.url}/e/family")
    styles = re.findall(r"/static/(?:styles|plain)-[A-Z0-9]+\.css", await page.content())
    links = "".join(f'<link rel="stylesheet" href="{style}">' for style in styles)
    found: list[str] = []
    for name, html in {
        "choosing": choosing(language, *PLAIN_TYPES, access=True),
        "held": held(language, *PLAIN_TYPES),
    }.items():
        head = f'<html lang="{language}" dir="{words(language).direction}"><head><title>A</title>{links}</head>'
        own = re.sub("</?noscript>", "", html)
        document = f"<!doctype html>{head}<body><main><h1>A show</h1>{own}</main></body></html>"
        await page.route("**/own", partial(answer, document))
        await page.goto(f"{site.url}/own")
        await page.unroute("**/own")
        for width in (320, 390, 1280):
            await page.set_viewport_size({"width": width, "height": 844})
            found += [f"{name} at {width} px: {each}" for each in await layout_problems(page)]
        height = await page.evaluate("document.documentElement.scrollHeight")
        await page.set_viewport_size({"width": 390, "height": height})
        found += [f"{name}: {each}" for each in [*await contrast_problems(page), *await axe_problems(page)]]
    assert found == [], "\n".join(found)


async def answer(document: str, route: Any) -> None:
    await route.fulfill(body=document, content_type="text/html; charset=utf-8")


async def test_types_are_chosen_by_keyboard(page: Any, site: RecordedSite) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await come_in(page, site, "family")
    await tab_to(page, "#best .type-steps [data-of-type=child] .step:last-of-type")
    await page.keyboard.press("Enter")
    await tab_to(page, "#type-code")
    await page.keyboard.type("FRIENDS26")
    await page.keyboard.press("Enter")
    await tab_to(page, "#section-GA1 [data-of-type=member] .step:last-of-type")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#held-tickets select")
    await page.keyboard.press("ArrowUp")
    await expect(page.locator("#held-total")).to_have_text("€25.00")
    await expect(page.locator("#held-tickets select")).to_be_focused()
    assert site.bodies(TYPES)[-1]["ga"] == [{"section_id": "GA1", "type_id": "senior", "quantity": 1}]


async def test_places_for_wheelchair_users_come_with_companions_at_their_types(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "family")
    await page.locator("#access summary").click()
    access = page.locator("#access li")
    await expect(access.locator(".type-price")).to_have_text(["from €26.00", "€0.00"])
    await expect(plus(page, "Places for wheelchair users · Companion")).to_have_attribute("aria-disabled", "true")
    await page.get_by_role("button", name="One ticket less for The best there is · Adult").click()
    await plus(page, "The best there is · Child").click()
    await plus(page, "Places for wheelchair users · Wheelchair place").click()
    await plus(page, "Places for wheelchair users · Companion").click()
    left = problem("no-accessible-places", "No.", wheelchair=1, companions=0)
    holds, site.answers[RESERVATIONS] = site.answers[RESERVATIONS], left
    await page.locator("#best-find").click()
    told = "There are not so many places together. Left for wheelchair users: 1; for companions: 0."
    await expect(page.locator("#trouble-text")).to_have_text(told)
    await expect(access.locator(".field-error")).to_have_text([told])
    assert await axe_problems(page) == []
    site.answers[RESERVATIONS] = holds
    await page.locator("#best-find").click()
    await expect(page.locator("#held")).to_be_visible()
    assert site.bodies(RESERVATIONS)[-1]["best_available"] == {
        "quantity": 4, "split": False, "wheelchair": 1, "companions": 1, "types": {"child": 1, "chair": 1, "carer": 1},
    }  # fmt: skip
    chosen = page.locator("#held-tickets select")
    assert [await chosen.nth(n).input_value() for n in range(4)] == ["chair", "carer", "child", "adult"]


async def test_a_companions_type_for_any_place_comes_with_wheelchair_places(page: Any, site: RecordedSite) -> None:
    *types, carer = site.answers["GET /events/family"]["price_types"]
    site.change("GET /events/family", price_types=[*types, carer | {"traits": []}])
    await come_in(page, site, "family")
    await page.locator("#access summary").click()
    await expect(page.locator("#access .type-price")).to_have_text(["from €26.00", "€0.00"])
    await plus(page, "The best there is · Companion").click()
    await plus(page, "Places for wheelchair users · Wheelchair place").click()
    await plus(page, "Places for wheelchair users · Companion").click()
    site.answers[RESERVATIONS] = problem("no-accessible-places", "No.", wheelchair=0, companions=0)
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_contain_text("There are not so many places together.")
    best = site.bodies(RESERVATIONS)[-1]["best_available"]
    assert best["types"] == {"carer": 2, "chair": 1}
    assert best["quantity"] == 5


async def test_an_event_without_types_has_places_for_wheelchair_users_at_its_prices(
    page: Any, site: RecordedSite
) -> None:
    a, *others = site.answers["GET /events/hall"]["sections"]
    site.change("GET /events/hall", sections=[a | {"traits": ["wheelchair", "companion"]}, *others])
    await come_in(page, site)
    await page.locator("#access summary").click()
    await expect(page.locator("#access .type-price").first).to_have_text("from €50.00")
    await page.locator("#best-quantity").select_option("0")
    await plus(page, "Places for wheelchair users · Wheelchair place").click()
    await page.locator("#best-find").click()
    wanted = {"quantity": 1, "split": False, "wheelchair": 1, "companions": 0}
    assert site.bodies(RESERVATIONS.replace("family", "hall")) == [{"best_available": wanted}]


async def test_a_code_opens_places_of_an_event_without_types(page: Any, site: RecordedSite) -> None:
    site.change("GET /events/hall", code_opens_places=True)
    await come_in(page, site)
    await expect(page.locator("#type-code-note")).to_have_text("A code opens: places that are kept for it.")
    await page.get_by_label("I have a code").fill("FANCLUB")
    await page.get_by_role("button", name="Use code").click()
    await page.locator("#best-find").click()
    wanted = {"best_available": {"quantity": 2, "split": False}, "code": "FANCLUB"}
    assert site.bodies(RESERVATIONS.replace("family", "hall")) == [wanted]


async def test_standing_places_that_are_kept_for_a_code_are_chosen_by_who_has_it(page: Any, site: RecordedSite) -> None:
    left = {"available_seats": 0, "held_seats": 3, "reserved_seats": 2}
    sections = site.answers["GET /events/hall/sections"]["sections"]
    site.change("GET /events/hall", code_opens_places=True)
    site.change(
        "GET /events/hall/sections", sections=[each | (left if each["kind"] == "ga" else {}) for each in sections]
    )
    await come_in(page, site)
    floor = page.locator("#section-GA1")
    await expect(floor.locator(".left")).to_have_text("2 left, kept for some fans")
    await expect(floor.locator(".action")).to_be_hidden()
    await page.get_by_label("I have a code").fill("FANCLUB")
    await page.get_by_role("button", name="Use code").click()
    more = floor.locator(".action .step").last
    await more.click()
    await more.click()
    await expect(more).to_have_attribute("aria-disabled", "true")
    await hold(page)
    wanted = {"ga": [{"section_id": "GA1", "quantity": 2}], "code": "FANCLUB"}
    assert site.bodies(RESERVATIONS.replace("family", "hall")) == [wanted]


async def test_the_list_without_a_map_shows_seats_that_a_code_opens_as_free(page: Any, site: RecordedSite) -> None:
    site.change("GET /events/hall", code_opens_places=True, map_hash=None)
    pages = site.answers["GET /events/hall/sections/A/seats"]

    def seats(asked: Asked) -> Any:
        """The first seat is kept for fans of the club."""
        first, *others = pages["seats"]
        status = "available" if "code=FANCLUB" in asked.query else "reserved"
        return {**pages, "seats": [first | {"status": status}, *others]}

    site.answers["GET /events/hall/sections/A/seats"] = seats
    await come_in(page, site)
    await page.locator("#section-A button").click()
    kept = page.locator("#seats .seat").first
    await expect(kept).to_have_attribute("data-status", "reserved")
    await page.get_by_label("I have a code").fill("FANCLUB")
    await page.get_by_role("button", name="Use code").click()
    await expect(kept).to_have_attribute("data-status", "available")
    await kept.click()
    async with page.expect_response("**/reservations"):
        await page.locator("#hold").click()
    seat_id = pages["seats"][0]["seat_id"]
    assert site.bodies(RESERVATIONS.replace("family", "hall")) == [{"seats": [seat_id], "code": "FANCLUB"}]


async def test_the_order_page_says_the_type_and_what_is_shown_at_the_door(page: Any, site: RecordedSite) -> None:
    order, tickets = f"GET /orders/{REFERENCE}", f"GET /orders/{REFERENCE}/tickets"
    of_type = {"type_id": "senior", "type_name": "Concession"}
    issued = [ticket | of_type | {"proof": "Pension card"} for ticket in site.answers[tickets]["tickets"]]
    site.change(order, lines=[line | of_type for line in site.answers[order]["lines"]])
    site.change(tickets, tickets=issued)
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await expect(page.locator(".ticket .type")).to_have_text(["Concession"] * len(issued))
    await expect(page.locator(".ticket .proof").first).to_have_text("Show at the door: Pension card")
    await expect(page.locator(".ticket img").first).to_have_attribute("alt", re.compile("Concession"))
    assert await axe_problems(page) == []


async def test_an_event_without_types_asks_for_none_of_this(page: Any, site: RecordedSite) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await come_in(page, site)
    await expect(page.locator("#type-code-form, .type-steps, #basket-seats")).to_have_count(0)
    assert not [url for url in asked if re.search(r"/static/types", url)]
