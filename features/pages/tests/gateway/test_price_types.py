"""Price types on pages without scripts: numbers by type, the choice for each ticket that is held, and refusals in
words, in every language; an event without types shows none of it.
"""

import re
from typing import Any

import pytest

from features.pages.contracts import CheckoutFacts, FoundReservation
from features.pages.forms import FormFields
from features.pages.gateway.documents import rendered
from features.pages.gateway.own import OwnView, checkout
from features.pages.gateway.price_types import EventTypes
from features.pages.gateway.stock import EventStock, SeatPlan, SeatTableRow
from shared.contracts.catalogue import EventDetails, SeatView, SectionList
from shared.contracts.inventory import Reservation, ReservedItem
from shared.contracts.orders import QuoteAnswer
from shared.contracts.prices import PricesAnswer
from shared.runtime.clock import now_ms
from shared.words.words import LANGUAGES, words

TYPES: list[dict[str, Any]] = [
    {"type_id": "adult", "name": "Adult"},
    {"type_id": "child", "name": "Child", "per_order": 3},
    {"type_id": "senior", "name": "Concession", "proof": "Pension card"},
    {"type_id": "member", "name": "<b>Member", "code_required": True},
    {"type_id": "early", "name": "Early", "lanes": [2]},
    {"type_id": "chair", "name": "Wheelchair", "traits": ["wheelchair"]},
    {"type_id": "carer", "name": "Companion", "companion_of": ["chair"], "traits": ["companion"]},
]
PRICES = {"child": 1500, "senior": 2400, "member": 1000, "early": 2700}
SECTION: dict[str, Any] = {
    "type": "std", "capacity": 50, "price_minor": 3000, "regular_price_minor": 3000, "currency": "EUR",
    "price_levels": [], "prices": PRICES, "rows": None, "seats_per_row": None,
}  # fmt: skip


def stock_of(*types: dict[str, Any]) -> EventStock:
    event = EventDetails.model_validate({
        "event_id": "show", "name": "Show", "venue": "Arena", "starts_at": "2030-06-01T18:00:00Z", "timezone": "UTC",
        "currency": "EUR", "price_from_minor": 3000, "price_types": types,
        "limits": {"tickets_per_order": 6, "tickets_per_customer": 0, "tour_tickets_per_customer": 0, "hold_ttl_s": 300,
                   "pay_ttl_s": 600},
        "sections": [
            SECTION | {"section_id": "GA1", "name": "Floor", "kind": "ga"},
            SECTION | {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 2, "seats_per_row": 5,
                       "prices": PRICES | {"chair": 1500, "carer": 0}, "traits": ["wheelchair", "companion"]},
        ],
    })  # fmt: skip
    availability = SectionList.model_validate({
        "sections": [{**{name: SECTION[name] for name in ("type", "price_minor", "currency")}, "section_id": "GA1",
                      "name": "Floor", "kind": "ga", "total_seats": 50, "available_seats": 50, "held_seats": 0}],
        "types": [{"type_id": "child", "available": 2}] if types else [],
    })  # fmt: skip
    by_type = {type_id: {minor: minor + 100} for type_id, minor in PRICES.items()}
    return EventStock(event, availability, PricesAnswer(all_in={3000: 3100}, all_in_by_type=by_type))


def page(language: str, view: OwnView) -> str:
    return rendered("own.html", language, view=view)


def choosing(
    language: str = "en", *types: dict[str, Any], form: bytes = b"", lane: int = 0, access: bool = False
) -> str:
    text, stock = words(language), stock_of(*types)
    view = OwnView("show", step="choosing", key="k", limit=6, sections=stock.rows(text), form=FormFields(form))
    view.is_accessible = access
    view.types = EventTypes(text, stock, lane) if types else None
    return page(language, view)


def options(html: str, field: str) -> list[str]:
    [select] = re.findall(rf'<select [^>]*name="{re.escape(field)}".*?</select>', html, re.DOTALL)
    return re.findall(r"<option[^>]*>(.*?)</option>", select)


def label(html: str, field: str) -> str:
    [text] = re.findall(rf'<label for="plain-{re.escape(field)}">(.*?)</label>', html, re.DOTALL)
    return re.sub(r"<[^>]*>", "", text)


def test_numbers_are_chosen_by_type_as_many_as_there_may_be():
    html = choosing("en", *TYPES)
    fields = re.findall(r'<select [^>]*name="([^"]+)"', html)
    assert fields == [
        "type.adult", "type.child", "type.senior", "type.member", "where",
        "ga.GA1", "ga.GA1~child", "ga.GA1~senior", "ga.GA1~member",
    ]  # fmt: skip
    assert options(html, "type.adult") == ["0", "1", "2", "3", "4", "5", "6"]
    assert options(html, "ga.GA1~child") == ["0", "1", "2"], "two are left"
    assert label(html, "ga.GA1~senior") == "Concession €25.00 · Show at the door: Pension card"
    assert label(html, "type.child") == "Child €16.00 · At most 3 in one order · 2 left"
    assert label(html, "type.member") == "&lt;b&gt;Member (with a code) €11.00"
    assert html.count('name="code"') == 2
    assert "A code opens: &lt;b&gt;Member." in html


def test_places_for_wheelchair_users_are_asked_for_at_their_types():
    html = choosing("en", *TYPES, access=True, form=b"companions=1")
    assert "Places for wheelchair users" in html
    assert '<input type="hidden" name="wheelchair_type" value="chair">' in html
    assert '<input type="hidden" name="companion_type" value="carer">' in html
    assert options(html, "wheelchair") == options(html, "companions") == ["0", "1", "2", "3", "4", "5", "6"]
    assert '<option value="1" selected>' in html.partition('name="companions"')[2].partition("</select>")[0]
    without = choosing("en", access=True)
    assert options(without, "quantity")[0] == "0 tickets"
    assert 'name="wheelchair_type"' not in without
    assert 'name="wheelchair"' not in choosing("en", *TYPES)


def test_a_companion_comes_with_the_type_of_wheelchair_places_where_places_have_no_type_of_their_own():
    chair, carer = TYPES[-2], {**TYPES[-1], "traits": []}
    html = choosing("en", *TYPES[:-2], chair, carer, access=True)
    assert '<input type="hidden" name="companion_type" value="carer">' in html
    assert label(html, "companions").endswith("€0.00 plus fees · Only with Wheelchair, one for each")
    elsewhere = choosing("en", *TYPES[:-2], chair, {**carer, "companion_of": ["senior"]}, access=True)
    assert 'name="companion_type"' not in elsewhere
    unsold = choosing("en", *TYPES[:-2], chair, {**carer, "type_id": "unsold"}, access=True)
    assert 'name="companion_type"' not in unsold


def test_a_type_of_another_lane_is_offered_to_its_lane_only():
    assert 'name="type.early"' not in choosing("en", *TYPES)
    assert 'name="type.early"' in choosing("en", *TYPES, lane=2)


def test_a_refused_form_keeps_what_was_chosen():
    html = choosing("en", *TYPES, form=b"type.child=2&where=A&split=1&code=FRIENDS&ga.GA1~senior=1")
    assert re.search(r'name="type.child">\s*.*<option value="2" selected>', html, re.DOTALL)
    assert '<option value="A" selected>' in html
    assert 'value="1" checked>' in html
    assert html.count('value="FRIENDS"') == 2


def test_an_event_without_types_has_one_number_and_no_code():
    html = choosing("en")
    assert options(html, "quantity")[:2] == ["1 ticket", "2 tickets"]
    assert options(html, "ga.GA1") == ["0", "1", "2", "3", "4", "5", "6"]
    assert not re.search(r'name="(type\.|code|best)', html)


def test_an_event_without_types_has_the_field_for_a_code_that_opens_places():
    text, stock = words("en"), stock_of()
    view = OwnView("show", step="choosing", sections=stock.rows(text), code_opens_places=True)
    html = page("en", view)
    assert html.count('name="code"') == 2
    assert "A code opens: places that are kept for it." in html


def test_standing_places_that_are_kept_for_a_code_can_be_asked_for():
    def choices(*, by_code: bool) -> list[str]:
        text, told = words("en"), stock_of()
        [floor] = told.availability.sections
        reserved = floor.model_copy(update={"available_seats": 0, "reserved_seats": 2})
        event = told.event.model_copy(update={"code_opens_places": by_code})
        stock = EventStock(event, told.availability.model_copy(update={"sections": [reserved]}))
        return options(page("en", OwnView("show", step="choosing", limit=6, sections=stock.rows(text))), "ga.GA1")

    assert choices(by_code=True) == ["0", "1", "2"]
    assert choices(by_code=False) == ["0"]


def held(language: str = "en", *types: dict[str, Any]) -> str:
    text, stock = words(language), stock_of(*types)
    lines = [
        ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=1500, type_id="child"),
        ReservedItem(section_id="GA1", quantity=2, unit_price_minor=3000),
    ]
    reservation = Reservation(
        event_id="show", reservation_id="r", holder="h", status="pending_payment", currency="EUR", total_minor=7500,
        reserved_until_ms=now_ms() + 60_000, lines=lines,
    )  # fmt: skip
    at = {"adult": 3000, **PRICES}
    found = FoundReservation(reservation=reservation, prices=[at, at] if types else [])
    quote = QuoteAnswer(reservation_id="r", total_minor=7500, currency="EUR", lines=[], extras=[])
    view = OwnView("show", step="held", types=EventTypes(text, stock, 0) if types else None)
    facts = CheckoutFacts(quote=quote, providers=[])
    view.checkout = checkout(text, stock, found, facts, promo="EARLY", types=view.types)
    return page(language, view)


def test_each_ticket_of_a_hold_has_the_choice_of_its_type():
    html = held("en", *TYPES)
    form = html[html.index("/reservations/r/types") :].partition("</form>")[0]
    assert re.findall(r'<select [^>]*name="([^"]+)"', form) == ["type.A-1-1", "type.GA1", "type.GA1"]
    assert re.findall(r'<option value="(\w+)" selected>', form) == ["child", "adult", "adult"]
    assert "Child · €16.00" in form
    assert 'value="early"' not in form
    assert '<input type="hidden" name="promo_code" value="EARLY">' in form
    assert "At most 3 in one order · 2 left" in form
    assert "/types" not in held("en")


def test_seats_say_when_their_price_is_chosen():
    text, stock = words("en"), stock_of(*TYPES)
    seat = SeatView(seat_id="A-1-1", row="1", number=1, status="available", price_minor=3000)
    plan = SeatPlan("A", "Stalls", 1, 1, [SeatTableRow("1", "€31.00", "", [(seat, "")])])
    view = OwnView(
        "show", step="choosing", seats=plan, types=EventTypes(text, stock, 0), form=FormFields(b"seat=A-1-1")
    )
    assert text("type_next") in page("en", view)
    assert re.search(r'value="A-1-1"\s+checked', page("en", view))
    view.types = None
    assert text("type_next") not in page("en", view)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_these_pages(language: str):
    text = words(language)
    assert text("type_code") in choosing(language, *TYPES)
    assert text("type_change") in held(language, *TYPES)


@pytest.mark.parametrize(("query", "told"), [
    ({"problem": "price-type-refused", "type": "child", "reason": "place"},
     "Child is not sold for this place. Choose another price."),
    ({"problem": "price-type-refused", "type": "child", "reason": "per-order", "n": "3"},
     "At most 3 of Child in one order."),
    ({"problem": "price-type-refused", "type": "carer", "reason": "companion", "n": "1"},
     "Companion comes only with Wheelchair, one for each: here is 1 of them."),
    ({"problem": "price-type-refused", "type": "member", "reason": "code"},
     "This code does not open <b>Member. Correct it, or choose another price."),
    ({"problem": "sold-out", "type": "child", "n": "0"}, "None of Child is left. Choose another price."),
    ({"problem": "sold-out", "type": "child", "n": "2"}, "Only 2 of Child are left."),
    ({"problem": "sold-out"}, ""),
    ({"problem": "price-type-refused", "type": "other", "reason": "place"}, ""),
    ({"problem": "price-type-refused", "type": "child", "reason": "<b>"}, ""),
    ({"problem": "sold-out", "type": "child", "n": "²"}, "None of Child is left. Choose another price."),
])  # fmt: skip
def test_a_refusal_is_told_in_words(query: dict[str, str], told: str):
    assert EventTypes(words("en"), stock_of(*TYPES), 0).refusal(query) == told
