"""Fees and taxes for some price types, and orders whose tickets have types, from the quote to the refund."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from features.promo.orders.codes import PromoCode
from services.orders.model.order import NO_TYPES, OrderLine, TypeName, TypeNames
from services.orders.model.rules import RefundSelection, plan
from services.orders.pricing import quote
from services.orders.pricing.quote import Quote
from services.orders.problems import RefundRefused
from services.orders.store.store import extras_json, lines_json
from services.orders.tickets.bill import order_bill
from services.orders.tickets.show import ShowInfo
from shared.contracts.admin.orders import TicketSelection
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import ReservedItem, ReturnTickets
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.security.tickets import published_keys, read_ticket
from shared.security.tokens import development_keys, jwks
from shared.words.words import LANGUAGES, words
from tests.orders.conftest import OrdersProcesses
from tests.orders.delivery.test_bill import order_of
from tests.orders.priced_event import FEES, PRICE_TYPES, Sale, open_sale
from tests.orders.pricing.test_prices import DISCOUNTS, LINES
from tests.orders.pricing.test_prices import FEES as ANY_FEE
from tests.orders.pricing.test_prices import TAXES as ANY_TAX
from tests.orders.shop import VIEWER_SECRET, Shop, pass_header
from tests.support.running.suite import problem

TYPES = TypeNames([TypeName("adult", "Adult"), TypeName("child", "Child", "A pupil's card"), TypeName("old", "Senior")])
OWN_IDS = [each.type_id for each in TYPES]
STORED = st.sampled_from(["", "child", "old"])
TYPED_LINES = LINES.flatmap(
    lambda lines: st.lists(STORED, min_size=len(lines), max_size=len(lines)).map(
        lambda ids: [line.model_copy(update={"type_id": each}) for line, each in zip(lines, ids, strict=True)]
    )
)


def some_types(extras: st.SearchStrategy[Any], types: st.SearchStrategy[list[str]]) -> st.SearchStrategy[Any]:
    return st.tuples(extras, types).map(lambda each: each[0].model_copy(update={"types": each[1]}))


SOME = st.lists(st.sampled_from(OWN_IDS), unique=True, max_size=3)
RULES = st.builds(
    PriceRules,
    fees=st.lists(some_types(ANY_FEE, SOME), max_size=5),
    taxes=st.lists(some_types(ANY_TAX, SOME), max_size=5),
)
FOR_CHILDREN = st.just(["child"])
CHILD_RULES = st.builds(
    PriceRules, fees=st.lists(some_types(ANY_FEE, FOR_CHILDREN), max_size=5),
    taxes=st.lists(some_types(ANY_TAX, FOR_CHILDREN), max_size=5),
)  # fmt: skip


def price(
    lines: Sequence[ReservedItem], rules: PriceRules, code: PromoCode | None = None, types: TypeNames = TYPES
) -> Quote:
    off = code.discount(list(lines), "EUR") if code else None
    return quote.price(lines, rules, off, currency="EUR", types=types)


def untyped(rules: PriceRules) -> PriceRules:
    return PriceRules(
        fees=[fee.model_copy(update={"types": []}) for fee in rules.fees],
        taxes=[tax.model_copy(update={"types": []}) for tax in rules.taxes],
    )


@settings(deadline=None)
@given(TYPED_LINES, RULES, DISCOUNTS)
def test_the_lines_sum_to_the_total_whatever_the_types(
    lines: list[ReservedItem], rules: PriceRules, code: PromoCode | None
) -> None:
    quoted = price(lines, rules, code)
    tickets = sum(line.unit_price_minor * line.quantity for line in lines)
    assert quoted.total_minor == tickets + sum(extra.amount_minor for extra in quoted.extras if not extra.included)
    assert all(line.paid_minor >= 0 for line in quoted.lines)


@settings(deadline=None)
@given(TYPED_LINES, CHILD_RULES)
def test_fees_and_taxes_of_a_type_touch_the_tickets_of_this_type_alone(
    lines: list[ReservedItem], rules: PriceRules
) -> None:
    quoted = price(lines, rules)
    children = [line for line in lines if line.type_id == "child"]
    for line, priced in zip(lines, quoted.lines, strict=True):
        if line.type_id != "child":
            assert priced.paid_minor == line.unit_price_minor * line.quantity
    alone = price(children, untyped(rules))
    assert [priced.paid_minor for priced in quoted.lines if priced.type_id == "child"] == [
        priced.paid_minor for priced in alone.lines
    ]
    assert [(extra.name, extra.amount_minor) for extra in quoted.extras] == [
        (extra.name, extra.amount_minor) for extra in alone.extras
    ]


@settings(deadline=None)
@given(TYPED_LINES, RULES, DISCOUNTS)
def test_a_rule_for_every_type_is_a_rule_without_types(
    lines: list[ReservedItem], rules: PriceRules, code: PromoCode | None
) -> None:
    everyone = PriceRules(
        fees=[fee.model_copy(update={"types": OWN_IDS}) for fee in rules.fees],
        taxes=[tax.model_copy(update={"types": OWN_IDS}) for tax in rules.taxes],
    )
    plain = price(lines, untyped(rules), code)
    assert [line.paid_minor for line in price(lines, everyone, code).lines] == [line.paid_minor for line in plain.lines]
    for extra, usual in zip(price(lines, everyone, code).extras, plain.extras, strict=True):
        assert replace(extra, base_minor=None) == usual


@settings(deadline=None)
@given(TYPED_LINES, RULES)
def test_an_included_tax_is_exact_and_rounded_once_over_all_types(lines: list[ReservedItem], rules: PriceRules) -> None:
    taxes = [tax.model_copy(update={"included": True, "name": f"t{n}"}) for n, tax in enumerate(rules.taxes)]
    quoted = price(lines, PriceRules(taxes=taxes))
    shown = {extra.name: extra for extra in quoted.extras}
    for tax in taxes:
        exact, net = Fraction(), Fraction()
        for line in lines:
            mine = [other for other in taxes if not other.types or (line.type_id or "adult") in other.types]
            if tax in mine:
                whole = 1 + sum((Fraction(t.percent) for t in mine), Fraction()) / 100
                each = line.unit_price_minor * line.quantity / whole
                exact, net = exact + each * Fraction(tax.percent) / 100, net + each
        found = shown.get(tax.name)
        assert abs((found.amount_minor if found else 0) - exact) <= Fraction(1, 2)
        if found and found.base_minor is not None:
            assert abs(found.base_minor - net) <= Fraction(1, 2)


@settings(deadline=None)
@given(TYPED_LINES, RULES)
def test_three_digit_amounts_of_types_can_be_charged_and_refunded(lines: list[ReservedItem], rules: PriceRules) -> None:
    lines = [line.model_copy(update={"unit_price_minor": line.unit_price_minor // 10 * 10}) for line in lines]
    fees = [fee.model_copy(update={"amount_minor": 250}) if fee.amount_minor else fee for fee in rules.fees]
    quoted = quote.price(lines, rules.model_copy(update={"fees": fees}), currency="KWD", types=TYPES)
    assert all(line.paid_minor % 10 == 0 for line in quoted.lines)


def ticket(price_minor: int, type_id: str = "", quantity: int = 1) -> ReservedItem:
    return ReservedItem(section_id="GA1", quantity=quantity, unit_price_minor=price_minor, type_id=type_id)


def test_a_fee_for_the_usual_type_is_named_by_its_own_id() -> None:
    rules = PriceRules(fees=[Fee(name="Booking", amount_minor=100, types=["adult"])])
    assert [line.paid_minor for line in price([ticket(1000), ticket(500, "child")], rules).lines] == [1100, 500]
    per_order = PriceRules(fees=[Fee(name="Order", per="order", amount_minor=100, types=["old"])])
    assert price([ticket(1000), ticket(500, "child")], per_order).extras == ()


def test_each_tax_of_the_bill_says_the_amount_that_it_is_on() -> None:
    taxes = [
        Tax(name="VAT", percent=Decimal(19), types=["adult"]),
        Tax(name="Reduced", percent=Decimal(7), types=["child"]),
    ]
    lines = [ticket(11900), ticket(10700, "child")]
    quoted = price(lines, PriceRules(taxes=taxes))
    assert [(extra.amount_minor, extra.base_minor) for extra in quoted.extras] == [(1900, 10000), (700, 10000)]
    order = replace(order_of(lines, PriceRules(), None), extras=quoted.extras, price_types=TYPES)
    assert order_bill(order, ShowInfo("e", "Night"), words("en")).taxes == [
        ("VAT (19 %): net €100.00, with tax €119.00", 1900), ("Reduced (7 %): net €100.00, with tax €107.00", 700)
    ]  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_bill_names_the_price_type_of_every_row(language: str) -> None:
    lines = [ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=100), ticket(50, "child", 2)]
    order = replace(order_of(lines, PriceRules(), None), price_types=TYPES)
    text = words(language)
    seat, floor = order_bill(order, ShowInfo("e", "Night"), text).rows
    assert ("Adult" in seat[0], "Child" in floor[0], floor[1]) == (True, True, 100)
    plain = order_bill(replace(order, price_types=NO_TYPES), ShowInfo("e", "Night"), text).rows
    assert "Adult" not in plain[0][0]


def test_lines_and_taxes_are_stored_as_they_are_and_older_ones_are_read() -> None:
    line = OrderLine(section_id="A", quantity=1, unit_price_minor=1, paid_minor=1, type_id="child")
    plain = replace(line, type_id="")
    assert [row.get("type_id") for row in lines_json([line, plain])] == ["child", None]
    [extra] = price([ticket(119)], PriceRules(taxes=[Tax(name="VAT", percent=Decimal(19))])).extras
    assert "base_minor" not in extras_json([extra])[0]
    assert extras_json([replace(extra, base_minor=100)])[0]["base_minor"] == 100


# -- what an event file may say ----------------------------------------------------------------------------------------


def event_file(**changes: Any) -> dict[str, Any]:
    seats = {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 5000}
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 100, "price_minor": 5000}
    return {
        "event_id": "e", "name": "A test", "venue": "A hall", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z",
        "price_types": PRICE_TYPES, "sections": [seats, floor], **changes,
    }  # fmt: skip


def test_fees_and_taxes_name_price_types_of_the_event() -> None:
    fee, tax = {"name": "F", "amount_minor": 1}, {"name": "T", "percent": 7}
    read = EventFile.model_validate(
        event_file(fees=[{**fee, "types": ["adult", "child"]}], taxes=[{**tax, "types": ["free"]}])
    )
    assert (read.fees[0].types, read.taxes[0].types) == (["adult", "child"], ["free"])
    for wrong, field in (
        ({"fees": [fee, {**fee, "types": ["student"]}]}, "fees.1"),
        ({"taxes": [{**tax, "types": ["x"]}]}, "taxes.0"),
    ):
        with pytest.raises(ValidationError, match=rf"{field}\.types: there is no price type (student|x)"):
            EventFile.model_validate(event_file(**wrong))
    with pytest.raises(ValidationError, match="there is no price type adult"):
        EventFile.model_validate(event_file(price_types=[], fees=[{**fee, "types": ["adult"]}]))


async def test_a_price_of_a_type_that_nobody_can_charge_is_refused_with_the_file(processes: OrdersProcesses) -> None:
    """Stripe takes 50 cents at least."""
    sale = Sale(await processes.open(sandbox_limits="stripe"))
    dear = [PRICE_TYPES[0], {"type_id": "child", "name": "Child", "price_minor": 10}]
    refused = await sale.apply_event_file(price_types=dear)
    assert problem(refused) == (422, "invalid-request")
    assert "sections.0 for price type child" in refused.json()["detail"]
    assert (await sale.apply_event_file(price_types=[dear[0], {**dear[1], "price_minor": 0}])).is_success
    elsewhere = [dear[0], {**dear[1], "traits": ["wheelchair"]}]
    assert (await sale.apply_event_file(price_types=elsewhere)).is_success, "no place has this trait"


async def test_amounts_of_a_type_are_checked_with_its_own_fees(processes: OrdersProcesses) -> None:
    sale = Sale(await processes.open(sandbox_limits="stripe"))
    fees = [{"name": "Booking fee", "amount_minor": 100, "types": ["child"]}]
    assert (await sale.apply_event_file(price_types=PRICE_TYPES, fees=fees)).is_success
    answer = await sale.admin_request("GET", "/amounts?each=40&each_of_type=40:child&each_of_type=30:free")
    assert [refusal.split(":")[0] for refusal in answer.json()["refusals"]] == [
        "a ticket of EUR 0.40", "a ticket of EUR 0.30 (free)"
    ]  # fmt: skip


async def test_the_same_file_changes_nothing_and_is_read_back_with_its_types(shop: Shop) -> None:
    sale = Sale(shop)
    rules: dict[str, Any] = {
        "fees": [{"name": "F", "per": "ticket", "amount_minor": 1, "percent": None, "types": ["adult", "child"]}],
        "taxes": [{"name": "T", "percent": "7", "included": True, "types": ["child"]}],
    }
    assert (await sale.apply_event_file(price_types=PRICE_TYPES, **rules)).json()["changed"] is True
    assert (await sale.apply_event_file(price_types=PRICE_TYPES, **rules)).json()["changed"] is False
    read = (await sale.admin_request("GET", "", secret=VIEWER_SECRET)).json()
    assert (read["fees"], read["taxes"]) == (rules["fees"], rules["taxes"])
    named = [{**each, "name": each["name"].upper()} for each in PRICE_TYPES]
    assert (await sale.apply_event_file(price_types=named, **rules)).json()["changed"] is True


# -- orders ------------------------------------------------------------------------------------------------------------

FLOOR = (
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=2500, type_id="child"),
    ReservedItem(section_id="GA1", quantity=2, unit_price_minor=5000),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=2500, type_id="child"),
)


async def bought_of(sale: Sale, *lines: ReservedItem, total_minor: int) -> str:
    answer = await sale.order(await sale.hold(*lines), total_minor, email="ada@example.org")
    assert answer.status_code == 202, answer.text
    reference = str(answer.json()["reference"])
    await sale.wait_for_status(reference, "confirmed")
    return reference


async def test_an_order_keeps_the_price_types_of_its_tickets(shop: Shop) -> None:
    fees = [{"name": "Booking fee", "amount_minor": 100, "types": ["adult"]}]
    sale = await open_sale(shop, price_types=PRICE_TYPES, fees=fees)
    reservation_id = await sale.hold(*FLOOR)
    quoted = (await sale.quote(reservation_id)).json()
    shown = [("child", "Child", 2500), ("adult", "Adult", 10200), ("child", "Child", 7500)]
    assert [(line["type_id"], line["type_name"], line["paid_minor"]) for line in quoted["lines"]] == shown
    assert (await sale.order(reservation_id, 1)).json()["lines"] == quoted["lines"]
    answer = await sale.order(reservation_id, 20200)
    order = await sale.wait_for_status(answer.json()["reference"], "confirmed")
    assert order["lines"] == quoted["lines"]
    stored = await shop.row(answer.json()["reference"])
    assert [line.type_id for line in stored.lines] == ["child", "", "child"]
    assert await shop.query("SELECT type_id, quantity FROM orders.order_line ORDER BY line_no") == [
        ("child", 1), ("", 2), ("child", 3)
    ]  # fmt: skip
    headers = pass_header(event_id=sale.event_id)
    issued = (await shop.http.get(f"/orders/{stored.reference}/tickets", headers=headers)).json()["tickets"]
    assert [(each["type_id"], each["type_name"], each.get("proof")) for each in issued[:2]] == [
        ("child", "Child", "A pupil's card"), ("adult", "Adult", None)
    ]  # fmt: skip
    keys = published_keys(orjson.dumps(jwks(development_keys("ticket").public())))
    assert [read_ticket(keys, each["code"]).type_id for each in issued] == ["child", "adult", "adult", *["child"] * 3]
    assert await shop.violated_invariants() == {}


async def test_an_event_without_price_types_answers_as_before(shop: Shop) -> None:
    sale = await open_sale(shop, fees=FEES)
    quoted = (await sale.quote(await sale.hold())).json()
    assert {name for line in quoted["lines"] for name in line} & {"type_id", "type_name"} == set()
    prices = (await shop.http.get(f"/orders/events/{sale.event_id}/prices")).json()
    assert (prices["fees"][0].keys() & {"types"}, "all_in_by_type" in prices) == (set(), False)


async def test_prices_of_a_type_are_public_with_its_own_fees(shop: Shop) -> None:
    fees = [{"name": "Booking fee", "amount_minor": 100, "types": ["adult"]}]
    taxes = [{"name": "Reduced", "percent": 10, "included": False, "types": ["child"]}]
    sale = await open_sale(shop, price_types=PRICE_TYPES, fees=fees, taxes=taxes)
    path = f"/orders/events/{sale.event_id}/prices"
    asked: dict[str, Any] = {
        "each": [5000],
        "each_of_type": ["5000:child", "2500:child", "5000:adult"],
        "line": ["5000x2", "2500x3:child"],
    }
    prices = (await shop.http.get(path, params=asked)).json()
    assert (prices["all_in"], prices["together_minor"]) == ({"5000": 5100}, 10200 + 8250)
    assert prices["all_in_by_type"] == {"child": {"5000": 5500, "2500": 2750}, "adult": {"5000": 5100}}
    assert [extra["types"] for extra in (*prices["fees"], *prices["taxes"])] == [["adult"], ["child"]]
    for wrong in ({"each_of_type": ["5000:student"]}, {"each_of_type": ["5000"]}, {"line": ["1x1:A"]}):
        assert (await shop.http.get(path, params=wrong)).status_code == 422


async def test_the_tickets_of_one_type_are_refunded_and_returned(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)

    def named(quantity: int, type_id: str | None) -> dict[str, Any]:
        return {"ga": [{"section_id": "GA1", "quantity": quantity, "type_id": type_id}]}

    unclear = await shop.admin_post(f"{reference}/refund", tickets=named(1, None), key="k0")
    assert problem(unclear) == (409, "refund-refused")
    assert "adult or child" in unclear.json()["detail"]
    more = await shop.admin_post(f"{reference}/refund", tickets=named(4, "child"), key="k1")
    assert problem(more) == (409, "refund-refused")
    answer = await shop.admin_post(f"{reference}/refund", tickets=named(2, "child"), key="k2")
    order = answer.json()
    assert order["refunded_minor"] + order["refunding_minor"] == 5000
    await shop.wait_for_status(reference, "partially_refunded")
    [returned] = shop.inventory.neighbour.received("/reservations/ticket-returns", ReturnTickets)
    assert [(some.section_id, some.quantity, some.type_id) for some in returned.ga] == [("GA1", 2, "child")]
    assert [line["returned"] for line in (await sale.view(reference))["lines"]] == [0, 0, 2]
    await shop.admin_post(f"{reference}/refund", tickets=named(1, "child"), key="k3")
    await shop.wait_for_status(reference, "partially_refunded")
    answer = await shop.admin_post(f"{reference}/refund", tickets=named(1, None), key="k4")
    assert answer.is_success, "one type is left"
    await shop.wait_for_status(reference, "partially_refunded")
    await shop.admin_post(f"{reference}/refund")
    await shop.wait_for_status(reference, "refunded")
    *_, last = shop.inventory.neighbour.received("/reservations/ticket-returns", ReturnTickets)
    assert (last.seats, [(some.quantity, some.type_id) for some in last.ga]) == (["A-1-1"], [(1, "")])
    assert await shop.violated_invariants() == {}
    rows = await shop.query("SELECT tickets FROM orders.refund ORDER BY id")
    assert [[each["type_id"] for each in row.tickets] for row in rows] == [
        ["child"], ["child"], ["adult"], ["child", "adult"]
    ]  # fmt: skip


LINES_OF_ONE_SECTION = (
    OrderLine(section_id="GA", quantity=2, unit_price_minor=30, paid_minor=60, line_no=1),
    OrderLine(section_id="GA", quantity=2, unit_price_minor=10, paid_minor=20, line_no=2, type_id="child"),
)


@pytest.mark.parametrize(
    ("ga", "lines"),
    [
        ((("GA", 2, "adult"),), [(1, 2)]),
        ((("GA", 1, "child"),), [(2, 1)]),
        ((("GA", 1, "adult"), ("GA", 1, "child")), [(1, 1), (2, 1)]),
        ((("GA", 1, None),), None),
        ((("GA", 3, "child"),), None),
        ((("GA", 1, "old"),), None),
    ],
)
def test_two_lines_of_a_section_are_told_apart(ga: Any, lines: list[tuple[int, int]] | None) -> None:
    order = replace(
        order_of([ticket(80)], PriceRules(), None), lines=LINES_OF_ONE_SECTION, price_types=TYPES, status="confirmed"
    )
    if lines is None:
        with pytest.raises(RefundRefused):
            plan(order, RefundSelection(ga=ga))
    else:
        planned = plan(order, RefundSelection(ga=ga))[1]
        assert [(each["line_no"], each["quantity"]) for each in planned] == lines


def test_a_section_named_twice_has_two_types() -> None:
    def selection(*types: str | None) -> TicketSelection:
        ga = [{"section_id": "GA", "quantity": 1, "type_id": each} for each in types]
        return TicketSelection.model_validate({"ga": ga})

    assert len(selection("adult", "child").ga) == 2
    for wrong in (("child", "child"), (None, "child"), (None, None)):
        with pytest.raises(ValidationError):
            selection(*wrong)


async def test_a_type_that_the_file_has_no_more_is_called_by_its_id(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await sale.apply_event_file(price_types=[{"type_id": "full", "name": "Full price"}])
    shop.state.store.sold.clear()
    lines = (await sale.view(reference))["lines"]
    assert [(line["type_id"], line["type_name"]) for line in lines] == [
        ("child", "child"), ("full", "Full price"), ("child", "child")
    ]  # fmt: skip
