"""Charges and refunds: immutable rows; a change is a new row with the same id."""

import secrets
from dataclasses import dataclass, replace
from typing import Any, Literal

from onsale.sandbox.behaviours import BEHAVIOURS, Behaviour, Method

Status = Literal["requires_action", "processing", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    id: str
    reference: str
    idempotency_key: str
    fingerprint: str
    status: Status
    amount_minor: int
    currency: str
    method: Method
    capture: bool
    captured_minor: int = 0
    refunded_minor: int = 0
    created_at: str
    occurred_at: str
    failure_reason: str | None = None
    page_url: str | None = None
    return_url: str | None = None
    late_after_s: float = 0.0
    succeeds_at_s: float | None = None
    """Unix time of a success that is still to come; it outlives a restart."""
    first_answer: dict[str, Any] | None = None
    """The first response about this charge, kept once the charge has changed since."""

    @property
    def behaviour(self) -> Behaviour:
        return BEHAVIOURS[self.method]

    def answer(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "reference": self.reference,
            "idempotency_key": self.idempotency_key,
            "status": self.status,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "captured_minor": self.captured_minor,
            "refunded_minor": self.refunded_minor,
            "method": self.method,
            "created_at": self.created_at,
            "occurred_at": self.occurred_at,
            "failure_reason": self.failure_reason,
            "checkout_url": self.page_url if self.status == "requires_action" else None,
        }

    def answer_at_first(self) -> dict[str, Any]:
        return self.first_answer or self.answer()

    def after(self, **changes: Any) -> "Charge":
        """This charge with changes; it keeps the first response."""
        return replace(self, first_answer=self.answer_at_first(), **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    id: str
    charge_id: str
    idempotency_key: str
    fingerprint: str
    amount_minor: int
    currency: str
    created_at: str

    def answer(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "charge_id": self.charge_id,
            "idempotency_key": self.idempotency_key,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "status": "succeeded",
            "created_at": self.created_at,
        }


def new_id(kind: Literal["ch", "re", "evt"]) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
