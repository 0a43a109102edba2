"""An operator's decision about an order in review: it is stored in the order's row and executed by its process.

A sale is kept, or what is left of its money is refunded and its tickets are void. An order that was never sold is
confirmed on money that matches exactly, or fully refunded, or expired if there is no money.
"""

from services.orders.model.decisions import Decision, allowed_decisions
from services.orders.model.order import Order
from services.orders.model.refund_plan import RefundSelection
from services.orders.model.update import OrderUpdate
from services.orders.problems import DecisionNotAllowed
from services.orders.requests.refund import RefundRequest, request_refund
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection


async def resolve_review(
    store: OrderStore, order: Order, actor: Actor, *, decision: Decision, return_to_sale: bool
) -> None:
    """Records the decision, which the order's process executes. Of two at once one is made. Raises
    `DecisionNotAllowed`.
    """
    if decision == "refund" and order.was_sold:
        _check(order, decision)
        request = RefundRequest(
            selection=RefundSelection(), actor=actor, return_to_sale=return_to_sale, in_review=True
        )  # fmt: skip
        await request_refund(store, order.reference, request)
        return

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        _check(order, decision)
        await audit_log.write(
            connection, "resolve", actor, subject=f"order:{order.reference}", before={"status": order.status},
            after={"decision": decision, "why_in_review": order.end_reason},
        )  # fmt: skip
        return OrderUpdate(order, bumps_version=False).set_order(review_decision=decision)

    await store.change(order.reference, decide)


def _check(order: Order, decision: Decision) -> None:
    if decision not in (allowed := allowed_decisions(order)):
        choices = f"Allowed decisions: {', '.join(sorted(allowed))}." if allowed else "The order is not in review."
        raise DecisionNotAllowed(choices)
