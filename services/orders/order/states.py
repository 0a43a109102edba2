"""The lawful steps of an order and of an attempt to charge it, as data.

`succeeded` beats every other end of an attempt, because money that moved is a fact; nothing goes back. `authorised` is
money promised to us and not yet taken; a confirmed order is cancelled only if it cannot be taken after all. A refund
that the provider will never carry out takes an order to `review`, wherever it stood.
"""

from typing import Final

ORDER_STEPS: Final[dict[str, frozenset[str]]] = {
    "pending": frozenset({"confirmed", "cancelled", "expired", "review"}),
    "review": frozenset({"confirmed", "expired", "partially_refunded", "refunded"}),
    "confirmed": frozenset({"partially_refunded", "refunded", "cancelled", "review"}),
    "partially_refunded": frozenset({"refunded", "review"}),
    "cancelled": frozenset({"late_paid"}),
    "expired": frozenset({"late_paid"}),
    "late_paid": frozenset({"confirmed", "refunded", "review"}),
    "refunded": frozenset({"review"}),
}
BACKED: Final = frozenset({"confirmed", "partially_refunded"})
SALE: Final = BACKED | {"refunded"}

ATTEMPT_STEPS: Final[dict[str, frozenset[str]]] = {
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
LIVE: Final = frozenset({"created", "unknown", "requires_action", "processing", "authorised"})


def may_become(status: str, to: str) -> bool:
    """Whether an order may take this step."""
    return to in ORDER_STEPS[status]


def attempt_after(status: str, told: str) -> str:
    """What an attempt is after the provider told this of it: forward only."""
    return told if told in ATTEMPT_STEPS[status] else status
