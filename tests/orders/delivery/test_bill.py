"""The bill in mail and in the export: its rows add up to the total, whatever was sold and returned."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from features.promo.orders.codes import PromoCode
from services.orders.model.order import Charge, Order, Refund
from services.orders.tickets.bill import Bill, Row, order_bill
from services.orders.tickets.show import ShowInfo
from shared.contracts.inventory import ReservedItem
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.words.words import words
from tests.orders.priced_event import FEES, TAXES, open_sale
from tests.orders.pricing.test_prices import DISCOUNTS, LINES, RULES, price
from tests.orders.shop import OPERATOR, mail_dispatcher
from tests.support.spreadsheets import csv_rows

SHOW = ShowInfo("e", "Night", section_names={"A": "Stalls"})
RECEIPT_OF_TRIAL = (
    [ReservedItem(section_id="A", seat_id=f"A-1-{n}", unit_price_minor=4200) for n in (1, 2, 3)],
    PriceRules(
        fees=[
            Fee(name="Booking fee", per="ticket", amount_minor=250),
            Fee(name="Order fee", per="order", amount_minor=199),
        ],
        taxes=[Tax(name="VAT", percent=Decimal(19)), Tax(name="City tax", percent=Decimal("1.5"), included=False)],
    ),
    PromoCode("TENOFF", percent=Decimal(10)),
)  # fmt: skip


def order_of(
    lines: list[ReservedItem],
    rules: PriceRules,
    discount: PromoCode | None,
    *,
    back_minor: int = 0,
    pending_minor: int = 0,
) -> Order:
    """A confirmed order, paid unless it is free; of its money some was returned and some is on its way back."""
    quote = price(lines, rules, discount)
    total_minor = quote.total_minor
    back_minor = min(back_minor, total_minor)
    pending_minor = min(pending_minor, total_minor - back_minor)
    charge = Charge(
        provider="sandbox", charge_ref="ch", amount_minor=total_minor, currency="EUR", occurred_at_ms=1,
        refunded_minor=back_minor + pending_minor,
    )  # fmt: skip
    pending = Refund(
        id=1, provider="sandbox", charge_ref="ch", amount_minor=pending_minor, currency="EUR", reason="", idem_key="k",
        tickets=[],
    )  # fmt: skip
    return Order(
        reference="REFERENCE123", status="partially_refunded" if back_minor else "confirmed", event_id="e",
        reservation_id="r", owner_id="e:fan", lane=0, join_seq=1, total_minor=total_minor, currency="EUR",
        customer_name="Ada", customer_email="a@b.example", language="en", created_at_ms=1, expires_at_ms=2, grace_s=5,
        confirmed_at_ms=1, ended_at_ms=None, end_reason=None, cancel_requested=False, extended=False, released=False,
        charge_ref="ch" if total_minor else None, version=1, now_ms=3, lines=quote.lines, extras=quote.extras,
        charges=(charge,) if total_minor else (), refunds=(pending,) if pending_minor else (),
    )  # fmt: skip


def amounts(rows: list[Row]) -> list[int]:
    return [amount_minor for _, amount_minor in rows]


@settings(deadline=None)
@given(LINES, RULES, DISCOUNTS, st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_rows_of_every_bill_add_up(
    lines: list[ReservedItem], rules: PriceRules, discount: PromoCode | None, back_minor: int, pending_minor: int
) -> None:
    order = order_of(lines, rules, discount, back_minor=back_minor, pending_minor=pending_minor)
    bill = order_bill(order, SHOW, words("en"))
    assert sum(amounts(bill.rows)) == order.total_minor == bill.sums[0][1]
    _, *payments = amounts(bill.sums)
    if order.charges and order.charges[0].refunded_minor:
        *moved, left = payments
        assert sum(moved) == left == order.total_minor - order.charges[0].refunded_minor
    else:
        assert sum(payments) == order.total_minor
    assert len(bill.taxes) == sum(extra.kind == "tax" for extra in order.extras)
    assert len(bill.rows) == len(order.lines) + sum(not extra.included for extra in order.extras)


def test_each_discount_fee_and_tax_has_its_row() -> None:
    bill = order_bill(order_of(*RECEIPT_OF_TRIAL), SHOW, words("en"))
    assert bill.rows[3:] == [
        ("Promo code TENOFF (10 %)", -1260), ("Booking fee", 750), ("Order fee", 199), ("City tax (1.5 %)", 184)
    ]  # fmt: skip
    assert bill.taxes == [
        ("VAT (19 %): net €103.27, with tax €122.89", 1962),
        ("City tax (1.5 %): net €122.89, with tax €124.73", 184)
    ]  # fmt: skip
    assert bill.sums[0] == ("Total, fees included", 12473)


def test_several_included_taxes_are_on_one_net_amount() -> None:
    taxes = [Tax(name="VAT", percent=Decimal(10)), Tax(name="Levy", percent=Decimal(5))]
    bill = order_bill(
        order_of([ReservedItem(section_id="A", unit_price_minor=11500)], PriceRules(taxes=taxes), None),
        SHOW,
        words("en"),
    )
    assert [name for name, _ in bill.taxes] == [
        "VAT (10 %): net €100.00, with tax €110.00", "Levy (5 %): net €100.00, with tax €105.00"
    ]  # fmt: skip


def test_refunds_and_refunded_tickets_are_told_apart() -> None:
    order = order_of(
        [ReservedItem(section_id="A", quantity=3, unit_price_minor=1000)],
        PriceRules(),
        None,
        back_minor=1000,
        pending_minor=500,
    )
    [line] = order.lines
    bill = order_bill(replace(order, lines=(replace(line, returned=1),)), SHOW, words("en"))
    assert bill.rows == [("3 × Stalls, 1 refunded", 3000)]
    assert [name for name, _ in bill.sums[-3:]] == ["Refunded", "On its way back", "Paid after refunds"]
    assert amounts(bill.sums) == [3000, 3000, -1000, -500, 1500]


async def test_the_mail_and_the_export_have_the_same_bill(mail_shop: Any, mailbox: Any) -> None:
    sale = await open_sale(mail_shop, fees=FEES, taxes=TAXES)
    await sale.put_code("TENOFF", percent=10)
    reservation = await sale.hold()
    total_minor = (await sale.quote(reservation, "TENOFF")).json()["total_minor"]
    reference = (await sale.order(reservation, total_minor, "TENOFF")).json()["reference"]
    order = await sale.wait_for_status(reference, "confirmed")
    await mail_dispatcher(mail_shop).run_once()
    [mail] = mailbox.received
    plain, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    bill: Bill = order_bill(
        await mail_shop.row(reference), ShowInfo(sale.event_id, "", section_names={"GA1": "x"}), words("en")
    )
    assert len(bill.rows) == 5, "tickets, code, two fees and a tax"
    for name, amount in (row for part in bill.written(words("en"), "EUR") for row in part if row[1]):
        assert f"{name}: {amount}" in plain
        assert f"<td>{name}</td><td>{amount}</td>" in html
    answer = await mail_shop.http.get("/admin/orders/export.csv", params={"event_id": sale.event_id}, headers=OPERATOR)
    [row] = csv_rows(answer.content)
    sums = {name: int(row[name]) for name in ("discounts_minor", "fees_minor", "taxes_minor", "included_taxes_minor")}
    assert [sums["discounts_minor"], sums["fees_minor"], sums["taxes_minor"]] == [
        sum(extra["amount_minor"] for extra in order["extras"] if extra["kind"] == kind and not extra["included"])
        for kind in ("discount", "fee", "tax")
    ]
    tickets_minor = int(row["quantity"]) * int(row["unit_price_minor"])
    assert tickets_minor + sums["discounts_minor"] + sums["fees_minor"] + sums["taxes_minor"] == total_minor
    assert (int(row["paid_minor"]), int(row["total_minor"])) == (total_minor, total_minor)
    assert sums["included_taxes_minor"] > 0


async def test_the_mail_about_a_refund_says_what_is_left(mail_shop: Any, mailbox: Any) -> None:
    sale = await open_sale(mail_shop, fees=FEES)
    reservation = await sale.hold()
    total_minor = (await sale.quote(reservation)).json()["total_minor"]
    reference = (await sale.order(reservation, total_minor)).json()["reference"]
    await sale.wait_for_status(reference, "confirmed")
    assert (await mail_shop.admin_post(f"{reference}/refund", amount_minor=1_000, key="k")).is_success
    await sale.wait_for_status(reference, "partially_refunded")
    await mail_dispatcher(mail_shop).run_once()
    [told] = [mail.get_body(("plain",)).get_content() for mail in mailbox.received if "Refunded" in mail["Subject"]]
    assert f"Paid after refunds: {words('en').money(total_minor - 1_000, 'EUR')}" in told
    assert "Refunded: -€10.00" in told
