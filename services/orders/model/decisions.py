"""What an operator may decide about an order in review."""

from typing import Literal

from services.orders.model.order import Order
from services.orders.model.refund_plan import refundable_minor

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
