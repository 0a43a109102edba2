"""Money that goes back: how much, and for which tickets, decided from the order alone; a row first, with a key of its
own, then the provider, then the entry.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.orders.order.next_step import Charge, Order, OrderLine, Refund
from services.orders.pricing.calculator import split
from services.orders.problems import RefundRefused

OVERSELL = "oversell"  # who asks, and why, when the stock sold more than there is
Ticket = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundSelection:
    """What is to go back: an amount, these tickets, or, without either, all that is left."""

    amount_minor: int | None = None
    seats: tuple[str, ...] = ()
    ga: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundPlan:
    """So much of the charge that pays for the sale, and these tickets; a free order has no charge."""

    charge: Charge | None
    amount_minor: int
    tickets: list[Ticket] = field(default_factory=list)


def ticket_value_minor(line: OrderLine, quantity: int) -> int:
    """What so many of this line's tickets are worth when they are given back after those that were given back before:
    their part of what was paid, fees and discounts in it. All shares of a line sum to what was paid for it.
    """
    shares = split(line.paid_minor, [1] * line.quantity)
    return sum(shares[line.returned : line.returned + quantity])


def refundable_minor(order: Order) -> int:
    """What of the sale's money is neither back nor on its way back."""
    return order.sale_charge.amount_minor - order.sale_charge.refunded_minor if order.sale_charge else 0


def plan(order: Order, wish: RefundSelection) -> RefundPlan:
    """Never more than is left, and no ticket twice. Raises `RefundRefused`."""
    left = refundable_minor(order)
    if wish.amount_minor is not None:
        if not 0 < wish.amount_minor <= left:
            raise RefundRefused(f"Of this order {left} is left to refund.")
        return RefundPlan(charge=order.sale_charge, amount_minor=wish.amount_minor)
    lines = {line.line_no: line for line in order.lines}
    if wish.seats or wish.ga:
        tickets = [_ticket(line, quantity) for line, quantity in _named(order, wish)]
        worth = sum(ticket_value_minor(lines[ticket["line_no"]], ticket["quantity"]) for ticket in tickets)
        return RefundPlan(charge=order.sale_charge, amount_minor=min(left, worth), tickets=tickets)
    tickets = [_ticket(line, line.remaining) for line in order.lines if line.remaining]
    if not left and (order.sale_charge or not tickets):
        raise RefundRefused
    return RefundPlan(charge=order.sale_charge, amount_minor=left, tickets=tickets)


def _named(order: Order, wish: RefundSelection) -> Iterator[tuple[OrderLine, int]]:
    for seat_id in wish.seats:
        line = next((line for line in order.lines if line.seat_id == seat_id and line.remaining), None)
        if line is None:
            raise RefundRefused(f"{seat_id} is no ticket of this order, or was given back.")
        yield line, 1
    for section_id, quantity in wish.ga:
        missing = quantity
        for line in order.lines:
            if line.section_id == section_id and line.seat_id is None and (n := min(line.remaining, missing)):
                missing -= n
                yield line, n
        if missing:
            raise RefundRefused(f"This order has not so many tickets of {section_id} left.")


def _ticket(line: OrderLine, quantity: int) -> Ticket:
    return {
        "line_no": line.line_no, "section_id": line.section_id, "seat_id": line.seat_id, "quantity": quantity
    }  # fmt: skip


def refund_row(charge: Charge, *, reason: str, asked_by: str, amount_minor: int | None = None) -> dict[str, Any]:
    """So much of a charge, or the rest of it, is to go back. The key follows from the charge and from how often it was
    asked for before, so whoever asks without having seen that asks for the same refund.
    """
    return {
        "provider": charge.provider, "charge_ref": charge.charge_ref, "currency": charge.currency, "reason": reason,
        "amount_minor": charge.amount_minor - charge.refunded_minor if amount_minor is None else amount_minor,
        "asked_by": asked_by, "idem_key": f"refund:{charge.charge_ref}:{charge.refunds}",
    }  # fmt: skip


def refund_row_of_plan(order: Order, planned: RefundPlan, *, reason: str, asked_by: str) -> dict[str, Any]:
    """As `row_of`. Where there is no money to move, the refund is done as soon as it is asked for."""
    if planned.charge is not None and planned.amount_minor:
        row = refund_row(planned.charge, reason=reason, asked_by=asked_by, amount_minor=planned.amount_minor)
        return {**row, "status": "requested", "tickets": planned.tickets}
    return {
        "provider": "none", "charge_ref": "", "currency": order.currency, "reason": reason, "amount_minor": 0,
        "asked_by": asked_by, "idem_key": f"tickets:{uuid.uuid4().hex}", "status": "succeeded",
        "tickets": planned.tickets,
    }  # fmt: skip


def status_by_balance(order: Order, *, waiting_minor: int = 0) -> str:
    """What a sold order is by its money; a free one, by its tickets. `waiting_minor` is asked for and not back yet."""
    if order.sale_charge is None:
        return "confirmed" if any(line.remaining for line in order.lines) else "refunded"
    back_minor = order.sale_charge.refunded_minor - waiting_minor
    if not back_minor:
        return "confirmed"
    return "refunded" if back_minor >= order.sale_charge.amount_minor else "partially_refunded"


def status_after(order: Order, refund: Refund) -> str | None:
    """The order's status once this refund of the charge that backs it is done; nothing if it keeps the one it has."""
    if not order.sold or refund.charge_ref != order.charge_ref:
        return None
    waiting = sum(r.amount_minor for r in order.refunds if r.charge_ref == order.charge_ref and r.id != refund.id)
    status = status_by_balance(order, waiting_minor=waiting)
    return status if status != order.status else None
