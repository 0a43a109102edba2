"""What a person may decide about an order in review; the decision is a row, and the cashier does it.

A sale that stands can go on standing, or all its money go back. What never was sold is confirmed on money that matches
exactly, or all its money goes back, or it ends, if there is none.
"""

from typing import Literal

from sqlalchemy import update

from services.orders.admin.manual_actions import Actor, note
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.problems import DecisionNotAllowed
from services.orders.processing.job_queue import EnqueueFailed
from services.orders.refunds.plan import RefundSelection, refundable_minor
from services.orders.refunds.request import RefundRequest, request_refund
from services.orders.state import State
from services.orders.tables import order
from shared.postgres.engine import AsyncConnection

Decision = Literal["confirm", "refund", "expire"]


def allowed_decisions(seen: Order) -> frozenset[str]:
    """What may be decided about it now; nothing about an order that is not in review, or is decided already."""
    if seen.status != "review" or seen.decided:
        return frozenset()
    if seen.sold:
        return frozenset({"confirm", "refund"} if refundable_minor(seen) else {"confirm"})
    if not seen.unmatched_charges:
        return frozenset({"expire"})
    return frozenset({"confirm", "refund"} if seen.matching_charge() else {"refund"})


async def resolve(state: State, seen: Order, decision: Decision, by: Actor, *, to_sale: bool) -> None:
    """Raises `DecisionNotAllowed` for what is not lawful."""
    if decision == "refund" and seen.sold:
        _check(seen, decision)
        await request_refund(
            state, seen.reference, RefundRequest(wish=RefundSelection(), by=by, to_sale=to_sale, in_review=True)
        )
        return
    for with_job in (True, False):
        try:
            async with state.db.begin() as connection:
                await _decide(connection, seen.reference, decision, by)
                if with_job:
                    await state.jobs.enqueue(connection, seen.reference)
            return
        except EnqueueFailed:
            continue


async def _decide(connection: AsyncConnection, reference: str, decision: Decision, by: Actor) -> None:
    """Under the order's lock: two who decide at once decide once."""
    await leases.mark_due(connection, reference)
    seen = (await leases.read_in(connection, [reference]))[reference]
    _check(seen, decision)
    await connection.execute(update(order).where(order.c.reference == reference).values(decided=decision))
    await note(
        connection, "resolve", by, event_id=seen.event_id, reference=reference, before=seen.status,
        decision=decision, why_in_review=seen.end_reason,
    )  # fmt: skip


def _check(seen: Order, decision: Decision) -> None:
    if decision not in (ways := allowed_decisions(seen)):
        allowed = f"It may be decided: {', '.join(sorted(ways))}." if ways else "It is not waiting for a decision."
        raise DecisionNotAllowed(allowed)
