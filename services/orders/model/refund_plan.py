"""Plans refunds from the order alone: how much money, and which tickets; and what may be decided about an order.

A refund is a row with an idempotency key first, then a call to the provider, then a money entry.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from services.orders.model.order import Charge, Order, OrderLine, Refund
from services.orders.problems import RefundRefused
from shared.rules.currencies import rounded_to, split, step_of

OUTSIDE = "outside"  # reason of refunds that were made at the provider itself
OVERSELL = "oversell"  # requester and reason of refunds of oversold tickets
Ticket = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundSelection:
    """What to refund: an amount, these tickets, or, without either, all that is left."""

    amount_minor: int | None = None
    seats: tuple[str, ...] = ()
    ga: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundPlan:
    """An amount of the sale's charge, and these tickets; a free order has no charge."""

    charge: Charge | None
    amount_minor: int
    tickets: list[Ticket] = field(default_factory=list)


def ticket_value_minor(line: OrderLine, quantity: int, currency: str) -> int:
    """The value of the next `quantity` tickets of this line: their part of what was paid, with fees and discounts. The
    values of all tickets of a line sum to what was paid for it.
    """
    shares = split(line.paid_minor, [1] * line.quantity, rounded_to(currency))
    return sum(shares[line.returned : line.returned + quantity])


def refundable_minor(order: Order) -> int:
    """The part of the sale's charge that is neither refunded, nor being refunded, nor withdrawn for a dispute."""
    return order.sale_charge.left_minor if order.sale_charge else 0


def plan(order: Order, selection: RefundSelection) -> RefundPlan:
    """Plans a refund, never more than is left and no ticket twice. Raises `RefundRefused`."""
    left = refundable_minor(order)
    if selection.amount_minor is not None:
        if not 0 < selection.amount_minor <= left:
            raise RefundRefused(f"At most {left} (in minor units) of this order can be refunded.")
        step = step_of(order.currency, left)
        if selection.amount_minor % step:
            raise RefundRefused(f"An amount in {order.currency} is refunded in multiples of {step} minor units.")
        return RefundPlan(charge=order.sale_charge, amount_minor=selection.amount_minor)
    lines = {line.line_no: line for line in order.lines}
    if selection.seats or selection.ga:
        tickets = [_ticket(line, quantity) for line, quantity in _selected_lines(order, selection)]
        worth = sum(
            ticket_value_minor(lines[ticket["line_no"]], ticket["quantity"], order.currency) for ticket in tickets
        )
        return RefundPlan(charge=order.sale_charge, amount_minor=min(left, worth), tickets=tickets)
    tickets = tickets_left(order)
    money_is_away = order.sale_charge is None or order.status == "review" or bool(order.sale_charge.disputed_minor)
    if not left and not (tickets and money_is_away):
        raise RefundRefused
    return RefundPlan(charge=order.sale_charge, amount_minor=left, tickets=tickets)


def _selected_lines(order: Order, selection: RefundSelection) -> Iterator[tuple[OrderLine, int]]:
    for seat_id in selection.seats:
        line = next((line for line in order.lines if line.seat_id == seat_id and line.remaining), None)
        if line is None:
            raise RefundRefused(f"{seat_id} is not a ticket of this order, or was refunded before.")
        yield line, 1
    for section_id, quantity in selection.ga:
        missing = quantity
        for line in order.lines:
            if line.section_id == section_id and line.seat_id is None and (n := min(line.remaining, missing)):
                missing -= n
                yield line, n
        if missing:
            raise RefundRefused(f"This order has fewer tickets of {section_id} left.")


def tickets_left(order: Order) -> list[Ticket]:
    """All tickets that were not refunded."""
    return [_ticket(line, line.remaining) for line in order.lines if line.remaining]


def _ticket(line: OrderLine, quantity: int) -> Ticket:
    return {"line_no": line.line_no, "section_id": line.section_id, "seat_id": line.seat_id, "quantity": quantity}


def refund_row(charge: Charge, *, reason: str, requested_by: str, amount_minor: int | None = None) -> dict[str, Any]:
    """The row of a refund of this amount, or of the rest of the charge. Its key counts the refunds of the charge so
    far, so that a second request based on the same order has the same key.
    """
    return {
        "provider": charge.provider, "charge_ref": charge.charge_ref, "currency": charge.currency, "reason": reason,
        "amount_minor": charge.left_minor if amount_minor is None else amount_minor,
        "requested_by": requested_by, "idem_key": f"refund:{charge.charge_ref}:{charge.refunds}",
    }  # fmt: skip


def refund_row_of_plan(order: Order, planned: RefundPlan, *, reason: str, requested_by: str) -> dict[str, Any]:
    """The row of a plan. Without money to move the refund is done at once."""
    if planned.charge is not None and planned.amount_minor:
        row = refund_row(planned.charge, reason=reason, requested_by=requested_by, amount_minor=planned.amount_minor)
        return {**row, "status": "requested", "tickets": planned.tickets}
    return {
        "provider": "none", "charge_ref": "", "currency": order.currency, "reason": reason, "amount_minor": 0,
        "requested_by": requested_by, "idem_key": f"tickets:{uuid.uuid4().hex}", "status": "succeeded",
        "tickets": planned.tickets,
    }  # fmt: skip


def outside_refund_row(charge: Charge, *, amount_minor: int, tickets: list[Ticket]) -> dict[str, Any]:
    """The row of a refund that was made at the provider itself. It is done; its key stands for the provider's id."""
    row = refund_row(charge, reason=OUTSIDE, requested_by=charge.provider, amount_minor=amount_minor)
    key = f"{OUTSIDE}:{charge.charge_ref}:{charge.refunds}"
    return {**row, "idem_key": key, "status": "succeeded", "tickets": tickets}


def status_by_balance(order: Order, *, waiting_minor: int = 0) -> str:
    """The status of a sale by its money, of a free one by its tickets, and of one whose money was withdrawn for a
    dispute by both. `waiting_minor` is requested and not refunded yet.
    """
    charge = order.sale_charge
    if charge is None:
        return "confirmed" if order.has_tickets else "refunded"
    back_minor = charge.refunded_minor - waiting_minor
    disputed_minor = 0 if order.has_tickets else charge.disputed_minor
    if disputed_minor + back_minor >= charge.amount_minor:
        return "refunded"
    return "partially_refunded" if back_minor else "confirmed"


def status_after(order: Order, refund: Refund) -> str | None:
    """The status once this refund of the sale's charge is done; None if it does not change."""
    if not order.was_sold or refund.charge_ref != order.charge_ref:
        return None
    waiting = sum(r.amount_minor for r in order.refunds if r.charge_ref == order.charge_ref and r.id != refund.id)
    status = status_by_balance(order, waiting_minor=waiting)
    return status if status != order.status else None


Decision = Literal["confirm", "refund", "expire"]  # of an operator, about an order in review


def allowed_decisions(order: Order) -> frozenset[str]:
    """What an operator may decide about this order now; none unless the order is in review and undecided."""
    if order.status != "review" or order.review_decision:
        return frozenset()
    if order.was_sold:
        return frozenset({"confirm", "refund"} if refundable_minor(order) or order.has_tickets else {"confirm"})
    if not order.unmatched_charges:
        return frozenset({"expire"})
    return frozenset({"confirm", "refund"} if order.matching_charge() else {"refund"})
