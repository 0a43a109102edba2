"""Decides the next step of an order from its rows alone: no I/O and no clock, so the same rows give the same step.

Each step may run again after a crash anywhere in it; there is nothing to resume, only rows to read.
"""

from typing import Literal

from services.orders.model.order import LIVE_STATUSES, MISMATCH, SALE_STATUSES, SOLD_STATUSES, Order

CAPTURES_MAX = 3  # failed captures before the authorisation and the sale are given up
DISPUTED, DISPUTE_LOST, DISPUTE_WON = "disputed", "dispute-lost", "dispute-won"  # why an order is in review
DISPUTE_REASONS = (DISPUTED, DISPUTE_LOST)
REVIEW_SYNC_S, DISPUTE_SYNC_S = 60.0, 3600.0  # so often an order in review is compared with the provider
REFUNDED_OUTSIDE = "refunded-outside"  # in part, at the provider itself: a person decides about the tickets

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
