"""How each payment method misbehaves, as data: the outcome of the charge, its answer and its webhooks."""

from dataclasses import dataclass
from typing import Literal

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
