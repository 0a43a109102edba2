"""The allowed transitions of an order and of a payment attempt, as data.

`succeeded` beats every other end of an attempt, because money that moved is a fact; nothing moves backwards.
`authorised` is money promised and not yet captured; a confirmed order is cancelled only if it cannot be captured. A
refund that the provider rejects for good takes an order to `review` from any status.
"""

from typing import Final

ORDER_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "pending": frozenset({"confirmed", "cancelled", "expired", "review"}),
    "review": frozenset({"confirmed", "expired", "partially_refunded", "refunded"}),
    "confirmed": frozenset({"partially_refunded", "refunded", "cancelled", "review"}),
    "partially_refunded": frozenset({"refunded", "review"}),
    "cancelled": frozenset({"late_paid"}),
    "expired": frozenset({"late_paid"}),
    "late_paid": frozenset({"confirmed", "refunded", "review"}),
    "refunded": frozenset({"review"}),
}
SOLD_STATUSES: Final = frozenset({"confirmed", "partially_refunded"})
SALE_STATUSES: Final = SOLD_STATUSES | {"refunded"}

ATTEMPT_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "created": frozenset({"unknown", "authorised", "failed", "cancelled", "succeeded"}),
    "unknown": frozenset(
        {"created", "requires_action", "processing", "authorised", "failed", "cancelled", "succeeded"}
    ),
    "requires_action": frozenset({"processing", "authorised", "failed", "cancelled", "succeeded"}),
    "processing": frozenset({"authorised", "failed", "cancelled", "succeeded"}),
    "authorised": frozenset({"failed", "cancelled", "succeeded"}),
    "failed": frozenset({"succeeded"}),
    "cancelled": frozenset({"succeeded"}),
    "succeeded": frozenset(),
}
LIVE_STATUSES: Final = frozenset({"created", "unknown", "requires_action", "processing", "authorised"})


def can_become(status: str, to: str) -> bool:
    """Whether an order may change to this status."""
    return to in ORDER_TRANSITIONS[status]


def attempt_after(status: str, reported: str) -> str:
    """The status of an attempt once the provider reported this one: forward only."""
    return reported if reported in ATTEMPT_TRANSITIONS[status] else status
