"""Amounts that no provider charges are refused when they are applied, or in the quote, and never at the last step."""

import csv
import io

import httpx
import pytest

from features.stripe.orders import from_stripe, stripe_limits, to_stripe
from shared.contracts.inventory import ReservedItem
from shared.rules.currencies import CURRENCIES, digits
from tests.orders.conftest import OrdersProcesses
from tests.orders.priced_event import Sale, open_sale
from tests.orders.shop import OPERATOR, VIEWER_SECRET, Shop, pass_header
from tests.support.running.suite import problem


@pytest.fixture
async def strict(processes: OrdersProcesses) -> Shop:
    """Only the sandbox, which takes the same amounts as Stripe."""
    return await processes.open(payment_providers=("sandbox",), sandbox_limits="stripe")


def seats(unit_price_minor: int, quantity: int = 1) -> ReservedItem:
    return ReservedItem(section_id="GA1", quantity=quantity, unit_price_minor=unit_price_minor)


def refused(answer: httpx.Response, *words: str) -> None:
    assert problem(answer) == (422, "invalid-request"), answer.text
    assert all(word in answer.json()["detail"] for word in words), answer.text


@pytest.mark.parametrize(
    ("currency", "price_minor", "words"),
    [
        ("KWD", 5_125, ("sections.0.price_minor", "KWD 5.125 is no multiple of KWD 0.010")),
        ("USD", 20, ("sections.0", "USD 0.20 is less than USD 0.50")),
        ("GBP", 29, ("GBP 0.29 is less than GBP 0.30",)),
        ("JPY", 49, ("JPY 49 is less than JPY 50",)),
        ("HUF", 17_499, ("HUF 174.99 is less than HUF 175.00",)),
        ("EUR", 100_000_000, ("EUR 1,000,000.00 is more than EUR 999,999.99",)),
        ("ISK", 1_000_000, ("ISK 1,000,000 is more than ISK 999,999",)),
        ("MGA", 150_050, ("MGA 1,500.50 is no multiple of MGA 1.00",)),
    ],
)
async def test_a_price_that_stripe_never_takes_is_refused_with_the_event(
    strict: Shop, currency: str, price_minor: int, words: tuple[str, ...]
) -> None:
    refused(await Sale(strict).apply_event_file(currency=currency, price_minor=price_minor), *words)


@pytest.mark.parametrize(
    ("currency", "price_minor"),
    [("KWD", 5_130), ("USD", 50), ("USD", 0), ("JPY", 50), ("IDR", 100_000_000), ("RSD", 1)],
)
async def test_what_stripe_takes_is_applied(strict: Shop, currency: str, price_minor: int) -> None:
    answer = await Sale(strict).apply_event_file(currency=currency, price_minor=price_minor)
    assert answer.status_code == 200, answer.text


async def test_the_check_counts_every_configured_provider(shop: Shop) -> None:
    """The sandbox takes anything, Stripe does not: a fan may choose it."""
    refused(await Sale(shop).apply_event_file(currency="KWD", price_minor=5_125), "stripe cannot charge it")


async def test_fees_and_codes_in_three_digits_are_multiples_of_ten(strict: Shop) -> None:
    fee = {"name": "Booking", "per": "ticket", "amount_minor": 155}
    answer = await Sale(strict).apply_event_file(currency="KWD", price_minor=5_130, fees=[fee])
    refused(answer, "fees.0.amount_minor", "KWD 0.155 is no multiple of KWD 0.010")
    sale = Sale(strict)
    answer = await sale.apply_event_file(
        currency="KWD", price_minor=5_130, fees=[{"name": "x", "per": "order", "percent": "3.3"}]
    )
    assert answer.status_code == 200, "a percentage is rounded to what can be charged"
    refused(await sale.admin_request("PUT", "/promo-codes/OFF", body={"amount_minor": 125}), "KWD 0.125 is no multiple")
    await sale.put_code("OFF", amount_minor=120)
    quote = await sale.quote(await sale.hold(seats(5_130, 3), currency="KWD"), "off")
    total_minor = quote.json()["total_minor"]
    assert total_minor == 15_270 + 500
    answer = await sale.order(await sale.hold(seats(5_130, 3), currency="KWD"), total_minor, "OFF", currency="KWD")
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    await sale.wait_for_status(reference, "confirmed")
    answer = await strict.admin_post(f"{reference}/refund", amount_minor=1_005, reason="rain", key="odd")
    assert (problem(answer), "multiples of 10" in answer.text) == ((409, "refund-refused"), True)
    assert (
        await strict.admin_post(f"{reference}/refund", amount_minor=1_010, reason="rain", key="even")
    ).status_code == 202


async def test_a_discount_that_leaves_too_little_is_refused_in_the_quote(strict: Shop) -> None:
    sale = Sale(strict)
    assert (await sale.apply_event_file(currency="USD", price_minor=500)).status_code == 200
    await sale.put_code("NEARLY", amount_minor=480)
    await sale.put_code("FREE", percent=100)
    held = await sale.hold(seats(500), currency="USD")
    quote = await sale.quote(held, "NEARLY")
    assert problem(quote) == (422, "amount-not-payable")
    assert "USD 0.20 is less than USD 0.50" in quote.json()["detail"]
    ordered = await sale.order(held, 20, "NEARLY", currency="USD")
    assert problem(ordered) == (422, "amount-not-payable")
    assert await strict.inventory.status(held) == "pending_payment"
    two = await sale.hold(seats(500, 2), currency="USD")
    assert (await sale.quote(two, "NEARLY")).json()["total_minor"] == 520
    assert (await sale.quote(held, "FREE")).json()["total_minor"] == 0
    answer = await sale.order(held, 0, "FREE", currency="USD")
    assert answer.status_code == 202, answer.text
    await sale.wait_for_status(answer.json()["reference"], "confirmed")
    assert await strict.charges() == []


async def test_a_total_that_only_another_provider_takes_is_refused_with_the_order(shop: Shop) -> None:
    sale = await open_sale(shop)
    held = await sale.hold(seats(20))
    assert (await sale.quote(held)).json()["total_minor"] == 20
    body = shop.body(held, total_minor=20) | {"payment": {"provider": "stripe", "method": "card", "token": "pm_card"}}
    answer = await sale.post(body)
    assert problem(answer) == (422, "amount-not-payable")
    assert "stripe cannot charge the total" in answer.json()["detail"]
    assert (await sale.order(held, 20)).status_code == 202


async def test_what_was_applied_before_a_provider_was_configured_is_found(processes: OrdersProcesses) -> None:
    earlier = await processes.open(payment_providers=("sandbox",))
    sale = Sale(earlier)
    fee = {"name": "Booking", "per": "ticket", "amount_minor": 155}
    assert (await sale.apply_event_file(currency="KWD", price_minor=5_125, fees=[fee])).status_code == 200
    await sale.put_code("ODD", amount_minor=1_001)
    now = Sale(await processes.open(), sale.event_id)
    answer = await now.admin_request("GET", "/amounts?each=5125&each=6000", secret=VIEWER_SECRET)
    assert [sentence.partition(":")[0] for sentence in answer.json()["refusals"]] == [
        "fees.0.amount_minor", "a ticket of KWD 5.125.price_minor", "a ticket of KWD 6.000", "promo code ODD",
    ]  # fmt: skip
    unknown = await Sale(earlier).admin_request("GET", "/amounts", secret=VIEWER_SECRET)
    assert problem(unknown) == (404, "unknown-event")


@pytest.mark.parametrize("code", CURRENCIES)
def test_amounts_go_to_stripe_and_back(code: str) -> None:
    limits = stripe_limits(code)
    for amount in (limits.least_minor, limits.most_minor // limits.step_minor * limits.step_minor):
        assert from_stripe(to_stripe(amount, code), code) == amount
        assert limits.refusal(amount, code) is None
    assert limits.refusal(limits.least_minor - limits.step_minor, code)
    assert limits.refusal(limits.most_minor + 1, code)
    assert digits(code) != 3 or limits.refusal(limits.least_minor + 1, code)


@pytest.mark.parametrize(
    "payment", [{"provider": "sandbox", "method": "decline"}, {"provider": "stripe", "method": "card"}]
)
async def test_a_free_order_passes_every_check_of_amounts(shop: Shop, payment: dict[str, str]) -> None:
    """No provider is asked, whatever it takes, and every report has the order with amounts of 0."""
    sale = await open_sale(shop, fees=[{"name": "Booking fee", "per": "order", "amount_minor": 150}])
    await sale.put_code("GUEST", percent=100)
    held = await sale.hold(seats(5_000, 2))
    assert (await sale.quote(held, "guest")).json()["total_minor"] == 0
    answer = await sale.post(shop.body(held, total_minor=0) | {"promo_code": "guest", "payment": payment})
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    order = await sale.wait_for_status(reference, "confirmed")
    amounts = ("total_minor", "charged_minor", "refunded_minor", "refunding_minor")
    assert [order[name] for name in amounts] == [0, 0, 0, 0]
    headers = pass_header("fan", event_id=sale.event_id)
    receipt = await shop.http.get(f"/orders/{reference}/receipt.pdf", headers=headers)
    assert (receipt.status_code, receipt.content[:5]) == (200, b"%PDF-")
    path = f"/admin/orders/export.csv?event_id={sale.event_id}"
    (row,) = csv.DictReader(io.StringIO((await shop.http.get(path, headers=OPERATOR)).text))
    assert [row[name] for name in ("total_minor", "charged_minor", "refunded_minor")] == ["0", "0", "0"]
    charges = await sale.admin_request("GET", "/charges", secret=VIEWER_SECRET)
    assert charges.json()["charges"] == await shop.money_entries() == []
    invariants = (await sale.admin_request("GET", "/audit", secret=VIEWER_SECRET)).json()["invariants"]
    assert [one["invariant"] for one in invariants if not one["holds"]] == []
