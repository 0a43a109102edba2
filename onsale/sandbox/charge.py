"""Charges and refunds: immutable rows; a change is a new row with the same id.

How each payment method misbehaves, as data: the outcome of the charge, its answer and its webhooks.

Errors of the sandbox: a code for programs and a sentence for people; they never repeat what was sent.
"""

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Outcome = Literal["succeeded", "failed", "processing"]
Answer = Literal["at_once", "slow", "hang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The defaults are those of a provider that works."""

    outcome: Outcome = "succeeded"
    failure_reason: str | None = None
    answer: Answer = "at_once"
    errors_before_success: int = 0
    succeeds_later: bool = False
    succeeds_after_cancel: bool = False
    charges_twice: bool = False
    refund_errors: int = 0
    capture_errors: int = 0
    copies_per_event: int = 1
    webhooks_reordered: bool = False


BEHAVIOURS: dict[str, Behaviour] = {
    "ok": Behaviour(),
    "decline": Behaviour(outcome="failed", failure_reason="card_declined"),
    "slow": Behaviour(answer="slow"),
    "timeout_after_success": Behaviour(answer="hang"),
    "error_then_ok": Behaviour(errors_before_success=2),
    "duplicate_webhooks": Behaviour(copies_per_event=3),
    "reordered_webhooks": Behaviour(webhooks_reordered=True),
    "late_success": Behaviour(outcome="processing", succeeds_later=True),
    "success_after_cancel": Behaviour(outcome="processing", succeeds_after_cancel=True),
    "double_success": Behaviour(charges_twice=True),
    "refund_fails_once": Behaviour(refund_errors=1),
    "capture_fails_once": Behaviour(capture_errors=1),
    "capture_fails": Behaviour(capture_errors=1_000_000),
    "redirect": Behaviour(),
}


Status = Literal["requires_action", "processing", "succeeded", "failed", "cancelled"]
NOT_ANSWERED = {"fingerprint", "capture", "page_url", "return_url", "late_after_s", "succeeds_at_s", "first_answer"}
DisputeStatus = Literal["open", "won", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    id: str
    reference: str
    idempotency_key: str
    fingerprint: str
    status: Status
    amount_minor: int
    currency: str
    method: str
    capture: bool
    event_id: str | None = None
    description: str | None = None
    statement: str | None = None
    captured_minor: int = 0
    refunded_minor: int = 0
    dispute: dict[str, Any] | None = None
    """`id`, `status`, the amount that is disputed and what of it is withdrawn."""
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
        return _answered(self) | {"checkout_url": self.page_url if self.status == "requires_action" else None}

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
        return _answered(self) | {"status": "succeeded"}


def _answered(row: Charge | Refund) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ANSWERED[type(row)]}


ANSWERED = {kind: [each.name for each in fields(kind) if each.name not in NOT_ANSWERED] for kind in (Charge, Refund)}


def new_id(kind: Literal["ch", "re", "dp", "evt"]) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


@dataclass(eq=False)
class RequestRefused(Exception):
    """A call that was not carried out; nothing was stored."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


class StoreDamaged(Exception):
    """The file of charges cannot be read: a person must repair or move it before new charges are written to it."""
