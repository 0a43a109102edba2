"""The view of an order: one body for `GET`, for its stream and for the other services; and what operators see of it."""

from typing import Any

from services.orders.model.order import Adjustment, Attempt, Order, OrderLine, TypeNames
from services.orders.model.rules import OVERSELL, allowed_decisions
from shared.contracts.admin.orders import AdminOrder
from shared.contracts.frames import OrderFrame
from shared.runtime.clock import rfc3339

_PROGRESS = {"created": "waiting", "unknown": "paying", "processing": "paying", "authorised": "confirming"}
_ATTEMPT_SHOWN = {"created": "processing", "unknown": "processing"}


def order_view(order: Order) -> dict[str, Any]:
    """What `GET /orders/{reference}` answers. An attempt whose outcome is unknown is shown as processing."""
    return {
        "reference": order.reference,
        "event_id": order.event_id,
        "reservation_id": order.reservation_id,
        "status": order.status,
        "progress": _progress(order),
        "total_minor": order.total_minor,
        "currency": order.currency,
        "charged_minor": order.charged_minor,
        "refunded_minor": order.refunded_minor,
        "refunding_minor": order.refunding_minor,
        "disputed_minor": order.disputed_minor,
        "dispute": order.dispute,
        "lines": [line_view(line, order.price_types) for line in order.lines],
        "extras": [adjustment_view(extra) for extra in order.extras],
        "customer": {"name": order.customer_name, "email": order.customer_email},
        "mail_failed": order.unmailed,
        "language": order.language,
        "created_at": rfc3339(order.created_at_ms),
        "expires_at": rfc3339(order.expires_at_ms),
        "expires_in_seconds": max(0, (order.expires_at_ms - order.now_ms) // 1000) if order.status == "pending" else 0,
        "confirmed_at": rfc3339(order.confirmed_at_ms) if order.confirmed_at_ms else None,
        "fulfilled_at": rfc3339(order.fulfilled_at_ms) if order.fulfilled_at_ms else None,
        "cancel_asked": order.cancel_requested,
        "extended": order.extended,
        "oversold": order.end_reason == OVERSELL,
        "end_reason": order.end_reason,
        "attempt": _attempt(order.attempt),
    }


def admin_view(order: Order) -> AdminOrder:
    """The public view, with the end reason and the decisions allowed in review."""
    decisions = sorted(allowed_decisions(order))
    return AdminOrder.model_validate(
        {**order_view(order), "end_reason": order.end_reason, "may_be_resolved_by": decisions}
    )


def line_view(line: OrderLine, types: TypeNames) -> dict[str, Any]:
    """A line with its price, discounts, fees and taxes included, and the names on its tickets, if they have any."""
    of_type = types.find(line.type_id)
    named = [ticket for ticket in line.tickets if ticket.name is not None]
    names = [{"ticket_id": one.id, "name": one.name, "void": one.void_at_ms is not None} for one in named]
    return {
        "section_id": line.section_id, "seat_id": line.seat_id, "quantity": line.quantity,
        "returned": line.returned,
        "unit_price_minor": line.unit_price_minor, "paid_minor": line.paid_minor, **({"names": names} if names else {}),
        **({"type_id": of_type.type_id, "type_name": of_type.name} if of_type else {}),
    }  # fmt: skip


def adjustment_view(extra: Adjustment) -> dict[str, Any]:
    """A discount, fee or tax; an included one is not added to the total."""
    return {
        "kind": extra.kind, "name": extra.name, "percent": extra.percent, "amount_minor": extra.amount_minor,
        "included": extra.included,
    }  # fmt: skip


def _progress(order: Order) -> str | None:
    """Where a pending order is: `waiting` for a worker, `paying`, `your-turn` (on the provider's page, or to try
    again), `confirming` or `cancelling`; None for an order that has ended.
    """
    if order.status != "pending":
        return None
    if order.cancel_requested:
        return "cancelling"
    if order.charges or order.attempt is None:
        return "confirming"
    return _PROGRESS.get(order.attempt.status, "your-turn")


def _attempt(attempt: Attempt | None) -> dict[str, Any] | None:
    if attempt is None:
        return None
    return {
        "n": attempt.n,
        "status": _ATTEMPT_SHOWN.get(attempt.status, attempt.status),
        "reason": attempt.reason,
        "checkout_url": attempt.checkout_url if attempt.status == "requires_action" else None,
    }


def order_frame(order: Order) -> OrderFrame:
    """The order as a frame; orders have no waiting line, so their epoch is 0."""
    return OrderFrame(
        event_id=order.event_id,
        epoch=0,
        version=order.version,
        ready=True,
        at_ms=order.now_ms,
        reference=order.reference,
        holder=order.holder,
        status=order.status,
        body=order_view(order),
        traceparent=order.traceparent,
    )
