"""An operator's decision about an order in review: it is stored in the order's row, and a worker executes it.

A sale is kept, or what is left of its money is refunded and its tickets are void. An order that was never sold is
confirmed on money that matches exactly, or fully refunded, or expired if there is no money.
"""

from typing import Literal

from sqlalchemy import update

from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.problems import DecisionNotAllowed
from services.orders.processing.job_queue import JobQueue
from services.orders.refunds.plan import RefundSelection, refundable_minor
from services.orders.refunds.request import RefundRequest, request_refund
from services.orders.tables import audit_log
from services.orders.tables import order as order_table
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection, AsyncEngine

Decision = Literal["confirm", "refund", "expire"]


def allowed_decisions(order: Order) -> frozenset[str]:
    """The decisions allowed now; none unless the order is in review and undecided."""
    if order.status != "review" or order.review_decision:
        return frozenset()
    if order.was_sold:
        return frozenset({"confirm", "refund"} if refundable_minor(order) or order.has_tickets else {"confirm"})
    if not order.unmatched_charges:
        return frozenset({"expire"})
    return frozenset({"confirm", "refund"} if order.matching_charge() else {"refund"})


async def resolve_review(
    db: AsyncEngine, job_queue: JobQueue, order: Order, actor: Actor, *, decision: Decision, return_to_sale: bool
) -> None:  # fmt: skip
    """Records the decision, which a worker executes. Raises `DecisionNotAllowed`."""
    if decision == "refund" and order.was_sold:
        _check(order, decision)
        request = RefundRequest(
            selection=RefundSelection(), actor=actor, return_to_sale=return_to_sale, in_review=True
        )  # fmt: skip
        await request_refund(db, job_queue, order.reference, request)
        return
    await job_queue.commit_with_job(
        db, order.reference, lambda connection: _decide(connection, order.reference, decision, actor)
    )


async def _decide(connection: AsyncConnection, reference: str, decision: Decision, actor: Actor) -> bool:
    """Holds the order's row lock, so that of two concurrent decisions one is made."""
    await leases.mark_due(connection, reference)
    order = (await leases.read_in(connection, [reference]))[reference]
    _check(order, decision)
    await connection.execute(
        update(order_table).where(order_table.c.reference == reference).values(review_decision=decision)
    )
    await audit_log.write(
        connection, "resolve", actor, subject=f"order:{reference}", before={"status": order.status},
        after={"decision": decision, "why_in_review": order.end_reason},
    )  # fmt: skip
    return True


def _check(order: Order, decision: Decision) -> None:
    if decision not in (allowed := allowed_decisions(order)):
        choices = f"Allowed decisions: {', '.join(sorted(allowed))}." if allowed else "The order is not in review."
        raise DecisionNotAllowed(choices)
