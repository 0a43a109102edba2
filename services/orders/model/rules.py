"""The rules about an order, decided from its rows alone: its next step, what a refund gives back, and what a person may
decide in review. No I/O and no clock, so the same rows give the same answer.

Each step may run again after a crash anywhere in it; there is nothing to resume, only rows to read. A refund is a row
with an idempotency key first, then a call to the provider, then a money entry.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from services.orders.model.order import (
    LIVE_STATUSES,
    MISMATCH,
    SALE_STATUSES,
    SOLD_STATUSES,
    Charge,
    Order,
    OrderLine,
    Refund,
)
from services.orders.problems import RefundRefused
from shared.rules.currencies import rounded_to, split, step_of

CAPTURES_MAX = 3  # failed captures before the authorisation and the sale are given up
DISPUTED, DISPUTE_LOST, DISPUTE_WON = "disputed", "dispute-lost", "dispute-won"  # why an order is in review
DISPUTE_REASONS = (DISPUTED, DISPUTE_LOST)
REVIEW_SYNC_S, DISPUTE_SYNC_S = 60.0, 3600.0  # so often an order in review is compared with the provider
REFUNDED_OUTSIDE = "refunded-outside"  # in part, at the provider itself: a person decides about the tickets
OUTSIDE = "outside"  # reason of refunds that were made at the provider itself
OVERSELL = "oversell"  # requester and reason of refunds of oversold tickets
Ticket = dict[str, Any]

Step = Literal[
    "send_refund", "return_tickets", "confirm", "charge", "sync_provider", "cancel_charge", "abandon_attempt", "cancel",
    "expire", "release_hold", "mark_paid_late", "reacquire_stock", "request_refund", "mark_refunded", "issue_tickets",
    "review", "keep_sold", "capture", "revoke_unpaid_sale", "wait",
]  # fmt: skip


def next_step(order: Order, *, review_after_s: float) -> Step:
    """What to do now. `wait`: nothing until the order is woken or due."""
    if order.refunds:
        return "send_refund"
    if order.returns:
        return "return_tickets"
    if order.status == "pending":
        return _pending(order, review_after_s=review_after_s)
    if order.status == "review":
        return _review(order)
    return _ended(order)


def _pending(order: Order, *, review_after_s: float) -> Step:
    if order.charges:
        return "confirm" if order.matching_charge() else "review"
    attempt = order.attempt
    if attempt is None:
        return "expire" if order.total_minor else "confirm"
    if attempt.status == "authorised":
        if attempt.reason == MISMATCH:
            return "review"
        return "cancel_charge" if order.cancel_requested else "confirm"
    if attempt.status not in LIVE_STATUSES:
        if order.cancel_requested or attempt.reason == "provider-error":
            return "cancel"
        return "expire" if order.is_late else ("sync_provider" if order.sync_requested else "wait")
    if not (order.cancel_requested or order.is_late):
        return "charge" if attempt.status in ("created", "unknown") else ("sync_provider" if order.sync_due else "wait")
    if attempt.status == "created":
        return "abandon_attempt"
    was_tried = order.errors > 0 or not order.sync_due  # else no worker came by since the deadline
    if order.now_ms > order.expires_at_ms + review_after_s * 1000 and was_tried:
        return "review"
    return "sync_provider" if attempt.status == "unknown" else "cancel_charge"


def _review(order: Order) -> Step:
    """Waits for an operator's decision. Only an unknown outcome that became known moves the order by itself, and a
    dispute that was won before anybody decided.
    """
    if order.review_decision:
        return _after_decision(order)
    if order.end_reason in DISPUTE_REASONS and order.dispute == "won":
        return "keep_sold"
    if order.end_reason == "unknown" and order.charges:
        return "confirm" if order.matching_charge() else "wait"
    if order.end_reason == "unknown" and order.authorised:
        return "wait" if order.authorised.reason == MISMATCH else "confirm"
    if order.end_reason == "unknown" and order.attempt and order.attempt.status not in LIVE_STATUSES:
        return "expire"
    return "sync_provider" if order.sync_due or order.sync_requested else "wait"


def _after_decision(order: Order) -> Step:
    """A sale is kept, or its refund was requested with the decision. Any other order is sold, refunded or expired."""
    if order.review_decision == "confirm":
        return "keep_sold" if order.was_sold else "reacquire_stock"
    if order.review_decision == "refund":
        return "request_refund" if order.unmatched_charges else "mark_refunded"
    return "expire"


def _ended(order: Order) -> Step:
    """The hold is released first; a late payment may reacquire its seats like anybody else. An authorisation is
    captured for the sale it pays for, and cancelled otherwise; a sale whose money cannot be captured is revoked.
    """
    if (attempt := order.authorised) is not None:
        tried = order.status != "confirmed" or attempt.errors >= CAPTURES_MAX
        return "cancel_charge" if tried or attempt.provider_ref != order.charge_ref else "capture"
    if order.status == "confirmed" and not order.is_paid and order.attempt and not order.attempt.capture:
        return "revoke_unpaid_sale"
    never_sold = order.status in ("cancelled", "expired") or (order.status == "refunded" and not order.was_sold)
    if never_sold and not order.released:
        return "release_hold"
    if order.unmatched_charges:
        return _unmatched(order)
    if order.status == "late_paid":
        return "mark_refunded"
    if order.status in SOLD_STATUSES and order.is_paid and order.fulfilled_at_ms is None:
        return "issue_tickets"
    return "sync_provider" if order.attempts and (order.sync_requested or order.sync_due) else "wait"


def _unmatched(order: Order) -> Step:
    """A second charge is refunded alone. A late payment is recorded, then judged by when the provider took it."""
    if order.status in SALE_STATUSES:
        return "request_refund"
    if order.status != "late_paid":
        return "mark_paid_late"
    charge = order.matching_charge()
    may_sell = order.end_reason not in ("fan", "operator", "taken", "capture")
    in_time = charge is not None and charge.occurred_at_ms <= order.expires_at_ms + order.grace_s * 1000
    return "reacquire_stock" if may_sell and in_time else "request_refund"


def next_due_s(order: Order, *, sync_interval_s: float) -> float | None:
    """When an order for which nothing is to be done now is due without being woken, in seconds; None: never."""
    if order.status == "review":
        if order.dispute == "open":
            return DISPUTE_SYNC_S
        return REVIEW_SYNC_S if order.end_reason == "unknown" else None
    if order.status != "pending":
        return None
    left_s = (order.expires_at_ms - order.now_ms) / 1000
    is_live = order.attempt is not None and order.attempt.status in LIVE_STATUSES
    return max(0.0, min(left_s, sync_interval_s) if is_live else left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundSelection:
    """What to refund: an amount, these tickets, or, without either, all that is left. Tickets without a seat are named
    by section, number and price type, which may be left out where the order has only one there.
    """

    amount_minor: int | None = None
    seats: tuple[str, ...] = ()
    ga: tuple[tuple[str, int, str | None], ...] = ()


def ticket_value_minor(line: OrderLine, quantity: int, currency: str) -> int:
    """The value of the next `quantity` tickets of this line: their part of what was paid, with fees and discounts. The
    values of all tickets of a line sum to what was paid for it.
    """
    shares = split(line.paid_minor, [1] * line.quantity, rounded_to(currency))
    return sum(shares[line.returned : line.returned + quantity])


def refundable_minor(order: Order) -> int:
    """The part of the sale's charge that is neither refunded, nor being refunded, nor withdrawn for a dispute."""
    return order.sale_charge.left_minor if order.sale_charge else 0


def plan(order: Order, selection: RefundSelection) -> tuple[int, list[Ticket]]:
    """Plans a refund: an amount of the sale's charge in minor units, and tickets; never more than is left and no ticket
    twice. Raises `RefundRefused`.
    """
    left = refundable_minor(order)
    if selection.amount_minor is not None:
        if not 0 < selection.amount_minor <= left:
            raise RefundRefused(f"At most {left} (in minor units) of this order can be refunded.")
        step = step_of(order.currency, left)
        if selection.amount_minor % step:
            raise RefundRefused(f"An amount in {order.currency} is refunded in multiples of {step} minor units.")
        return selection.amount_minor, []
    lines = {line.line_no: line for line in order.lines}
    if selection.seats or selection.ga:
        tickets = [_ticket(order, line, quantity) for line, quantity in _selected_lines(order, selection)]
        worth = sum(
            ticket_value_minor(lines[ticket["line_no"]], ticket["quantity"], order.currency) for ticket in tickets
        )
        return min(left, worth), tickets
    tickets = tickets_left(order)
    money_is_away = order.sale_charge is None or order.status == "review" or bool(order.sale_charge.disputed_minor)
    if not left and not (tickets and money_is_away):
        raise RefundRefused
    return left, tickets


def _selected_lines(order: Order, selection: RefundSelection) -> Iterator[tuple[OrderLine, int]]:
    for seat_id in selection.seats:
        line = next((line for line in order.lines if line.seat_id == seat_id and line.remaining), None)
        if line is None:
            raise RefundRefused(f"{seat_id} is not a ticket of this order, or was refunded before.")
        yield line, 1
    for section_id, quantity, type_id in selection.ga:
        left = [
            line for line in order.lines if line.section_id == section_id and line.seat_id is None and line.remaining
        ]
        if type_id is not None:
            left = [line for line in left if order.price_types.shown(line.type_id) == type_id]
        elif len(types := {line.type_id for line in left}) > 1:
            shown = sorted(str(order.price_types.shown(each)) for each in types)
            raise RefundRefused(f"Name the type_id of the tickets of {section_id}: {' or '.join(shown)}.")
        missing = quantity
        for line in left:
            if n := min(line.remaining, missing):
                missing -= n
                yield line, n
        if missing:
            of_type = f" with the price type {type_id}" if type_id is not None else ""
            raise RefundRefused(f"This order has fewer tickets of {section_id}{of_type} left.")


def tickets_left(order: Order) -> list[Ticket]:
    """All tickets that were not refunded."""
    return [_ticket(order, line, line.remaining) for line in order.lines if line.remaining]


def _ticket(order: Order, line: OrderLine, quantity: int) -> Ticket:
    type_id = order.price_types.shown(line.type_id)
    return {
        "line_no": line.line_no, "section_id": line.section_id, "seat_id": line.seat_id, "quantity": quantity,
        **({"type_id": type_id} if type_id is not None else {}),
    }  # fmt: skip


def refund_row(charge: Charge, *, reason: str, requested_by: str, amount_minor: int | None = None) -> dict[str, Any]:
    """The row of a refund of this amount, or of the rest of the charge. Its key counts the refunds of the charge so
    far, so that a second request based on the same order has the same key.
    """
    return {
        "provider": charge.provider, "charge_ref": charge.charge_ref, "currency": charge.currency, "reason": reason,
        "amount_minor": charge.left_minor if amount_minor is None else amount_minor,
        "requested_by": requested_by, "idem_key": f"refund:{charge.charge_ref}:{charge.refunds}",
    }  # fmt: skip


def refund_row_of_plan(
    order: Order, amount_minor: int, tickets: list[Ticket], *, reason: str, requested_by: str
) -> dict[str, Any]:
    """The row of a plan. Without money to move the refund is done at once."""
    if order.sale_charge is not None and amount_minor:
        row = refund_row(order.sale_charge, reason=reason, requested_by=requested_by, amount_minor=amount_minor)
        return {**row, "status": "requested", "tickets": tickets}
    return {
        "provider": "none", "charge_ref": "", "currency": order.currency, "reason": reason, "amount_minor": 0,
        "requested_by": requested_by, "idem_key": f"tickets:{uuid.uuid4().hex}", "status": "succeeded",
        "tickets": tickets,
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


def allowed_decisions(order: Order) -> frozenset[str]:
    """What an operator may decide about this order now; none unless the order is in review and undecided."""
    if order.status != "review" or order.review_decision:
        return frozenset()
    if order.was_sold:
        return frozenset({"confirm", "refund"} if refundable_minor(order) or order.has_tickets else {"confirm"})
    if not order.unmatched_charges:
        return frozenset({"expire"})
    return frozenset({"confirm", "refund"} if order.matching_charge() else {"refund"})
