"""The price calculator: every line is exact and rounded once, and the shares of its tickets sum to it."""

import json
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from features.promo.orders.codes import PromoCode
from features.promo.schemas import PromoCodeRequest
from services.orders.model.rules import ticket_value_minor
from services.orders.pricing import quote
from services.orders.pricing.quote import Quote
from shared.contracts.admin.orders import RefundBody
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import ReservedItem
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.rules.currencies import split

AMOUNTS = st.integers(1, 10**8)
PERCENTAGES = st.decimals("0.001", 100, places=3)
SECTIONS = st.sampled_from(["A", "B", "GA1"])
LINES = st.lists(
    st.builds(
        ReservedItem, section_id=SECTIONS, seat_id=st.none(), quantity=st.integers(1, 9),
        unit_price_minor=st.integers(0, 10**8),
    ),
    min_size=1, max_size=8,
)  # fmt: skip
PER = st.sampled_from(["ticket", "order"])
FEES = st.one_of(
    st.builds(Fee, name=st.just("fee"), per=PER, amount_minor=AMOUNTS),
    st.builds(Fee, name=st.just("fee"), per=PER, percent=PERCENTAGES),
)
TAXES = st.builds(Tax, name=st.just("tax"), percent=PERCENTAGES, included=st.booleans())
RULES = st.builds(PriceRules, fees=st.lists(FEES, max_size=5), taxes=st.lists(TAXES, max_size=5))
CODE = partial(PromoCode, name="CODE")
OFF_SECTIONS = {"section_ids": st.frozensets(SECTIONS)}
DISCOUNTS = st.one_of(
    st.none(),
    st.builds(CODE, percent=PERCENTAGES, **OFF_SECTIONS),
    st.builds(CODE, amount_minor=AMOUNTS, **OFF_SECTIONS),
)


def price(lines: list[ReservedItem], rules: PriceRules, code: PromoCode | None = None, currency: str = "EUR") -> Quote:
    return quote.price(lines, rules, code.discount(lines, currency) if code else None, currency=currency)


@settings(deadline=None)
@given(LINES, RULES, DISCOUNTS)
def test_the_shares_of_all_tickets_sum_to_the_total(
    lines: list[ReservedItem], rules: PriceRules, discount: PromoCode | None
):
    quote = price(lines, rules, discount)
    tickets = sum(line.unit_price_minor * line.quantity for line in lines)
    assert quote.total_minor == tickets + sum(extra.amount_minor for extra in quote.extras if not extra.included)
    assert all(line.paid_minor >= 0 for line in quote.lines)
    assert all(
        (extra.amount_minor <= 0) == (extra.kind == "discount") or not extra.amount_minor for extra in quote.extras
    )
    each = [share for line in quote.lines for share in split(line.paid_minor, [1] * line.quantity)]
    assert sum(each) == quote.total_minor
    assert min(each) >= 0


@settings(deadline=None)
@given(LINES, DISCOUNTS)
def test_a_discount_covers_its_sections_only_and_never_exceeds_the_price(lines, discount):
    quote = price(lines, PriceRules(), discount)
    for line, priced in zip(lines, quote.lines, strict=True):
        cost = line.unit_price_minor * line.quantity
        assert 0 <= priced.paid_minor <= cost
        if discount is None or not discount.covers(line.section_id):
            assert priced.paid_minor == cost


@settings(deadline=None)
@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_parts_sum_to_the_whole_and_are_at_most_one_unit_off(amount: int, weights: list[int]):
    if not any(weights):
        return
    parts = split(amount, weights)
    assert sum(parts) == amount
    assert all(
        abs(part * sum(weights) - amount * weight) < sum(weights) for part, weight in zip(parts, weights, strict=True)
    )
    assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0)


def ticket(price_minor: int, quantity: int = 1, section_id: str = "GA1") -> ReservedItem:
    return ReservedItem(section_id=section_id, quantity=quantity, unit_price_minor=price_minor)


def percent_fee(percent: str, per: str = "order") -> PriceRules:
    return PriceRules.model_validate({"fees": [{"name": "fee", "per": per, "percent": percent}]})


@pytest.mark.parametrize(
    ("price_minor", "percent", "fee_minor"),
    [(10, "25", 3), (10, "24.999", 2), (1, "50", 1), (1, "49.999", 0), (7, "50", 4)],
)
def test_a_half_unit_is_rounded_up(price_minor: int, percent: str, fee_minor: int):
    assert price([ticket(price_minor)], percent_fee(percent)).total_minor == price_minor + fee_minor


def test_a_percentage_per_ticket_is_rounded_by_line_and_per_order_once():
    lines = [ticket(50), ticket(50), ticket(50)]
    assert price(lines, percent_fee("1", "ticket")).total_minor == 153
    assert price(lines, percent_fee("1", "order")).total_minor == 152


def test_an_included_tax_is_part_of_the_price_and_an_added_tax_is_not():
    fees = [Fee(name="Booking", per="ticket", amount_minor=400)]
    included = Tax(name="VAT", percent=Decimal(19), included=True)
    added = Tax(name="City tax", percent=Decimal(5), included=False)
    quote = price([ticket(11500)], PriceRules(fees=fees, taxes=[included, added]))
    assert [(extra.name, extra.amount_minor, extra.included) for extra in quote.extras] == [
        ("Booking", 400, False), ("VAT", 1900, True), ("City tax", 595, False)
    ]  # fmt: skip
    assert quote.total_minor == 12495


def test_included_taxes_share_one_net_price():
    taxes = [Tax(name=name, percent=Decimal(10)) for name in ("state", "city")]
    assert [extra.amount_minor for extra in price([ticket(1200)], PriceRules(taxes=taxes)).extras] == [100, 100]


def test_a_free_ticket_carries_no_fee():
    fees = [Fee(name="Booking", amount_minor=150), Fee(name="Order", per="order", amount_minor=200)]
    rules = PriceRules(fees=fees)
    free = CODE(percent=Decimal(100), section_ids=["A"])
    one_free = price([ticket(5000, section_id="A"), ticket(3000, section_id="B")], rules, free)
    assert [line.paid_minor for line in one_free.lines] == [0, 3350]
    all_free = price([ticket(5000, section_id="A")], rules, free)
    assert (all_free.total_minor, [extra.kind for extra in all_free.extras]) == (0, ["discount"])


def test_a_fixed_discount_is_shared_by_price_and_ends_at_zero():
    discount = CODE(amount_minor=1000)
    quote = price([ticket(2000), ticket(1000)], PriceRules(), discount)
    assert [line.paid_minor for line in quote.lines] == [1333, 667]
    assert price([ticket(600)], PriceRules(), discount).total_minor == 0


@pytest.mark.parametrize("number", ["100", True, 100.5, 1e2, "1e2", None, [100]])
def test_a_price_that_is_not_an_integer_is_refused(number) -> None:
    ga = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 100}
    file = {
        "event_id": "show", "name": "A", "venue": "B", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z",
        "sections": [ga], "fees": [{"name": "Service", "amount_minor": 100}],
    }  # fmt: skip
    EventFile.model_validate(file)
    for broken in (
        {"sections": [{**ga, "price_minor": number}]}, {"sections": [{**ga, "fee_minor": number}]},
        {"fees": [{"name": "Service", "amount_minor": number}]},
    ):  # fmt: skip
        with pytest.raises(ValidationError):
            EventFile.model_validate({**file, **broken})
        with pytest.raises(ValidationError):
            EventFile.model_validate_json(json.dumps({**file, **broken}))
    with pytest.raises(ValidationError):
        RefundBody.model_validate({"reason": "x", "amount_minor": number or "0"})
    if number is not None:
        with pytest.raises(ValidationError):
            PromoCodeRequest.model_validate({"amount_minor": number})


STEPS = st.integers(0, 10**6).map(lambda steps: steps * 10)


@settings(deadline=None)
@given(LINES, RULES, DISCOUNTS, STEPS)
def test_three_digit_amounts_are_rounded_to_what_can_be_charged(lines, rules, discount, amount_minor):
    """Each total, each line and each ticket is a multiple of 0.010, so that every part can be refunded, too."""
    lines = [line.model_copy(update={"unit_price_minor": line.unit_price_minor // 10 * 10}) for line in lines]
    fees = [fee.model_copy(update={"amount_minor": amount_minor}) if fee.amount_minor else fee for fee in rules.fees]
    if discount is not None and discount.amount_minor:
        discount = replace(discount, amount_minor=amount_minor)
    quote = price(lines, rules.model_copy(update={"fees": fees}), discount, "KWD")
    paid = [line.paid_minor for line in quote.lines]
    assert quote.total_minor % 10 == 0
    assert all(minor % 10 == 0 <= minor for minor in paid)
    for line in quote.lines:
        each = [ticket_value_minor(replace(line, returned=n), 1, "KWD") for n in range(line.quantity)]
        assert sum(each) == line.paid_minor
        assert all(minor % 10 == 0 for minor in each)


def test_a_percentage_of_three_digits_is_rounded_half_up_to_ten_minor_units():
    lines = [ticket(5_130)]
    assert price(lines, percent_fee("10"), currency="KWD").total_minor == 5_130 + 510
    assert price(lines, percent_fee("12.6"), currency="KWD").total_minor == 5_130 + 650
    assert price(lines, percent_fee("10"), currency="EUR").total_minor == 5_130 + 513
    assert price([ticket(5_125)], percent_fee("10"), currency="KWD").total_minor == 5_125 + 513
