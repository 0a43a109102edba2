"""How each payment method misbehaves, as data: the outcome of the charge, its answer and its webhooks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Outcome = Literal["succeeded", "failed", "processing"]
Answer = Literal["at_once", "slow", "hang"]


class Method(StrEnum):
    OK = "ok"
    DECLINE = "decline"
    SLOW = "slow"
    TIMEOUT_AFTER_SUCCESS = "timeout_after_success"
    ERROR_THEN_OK = "error_then_ok"
    DUPLICATE_WEBHOOKS = "duplicate_webhooks"
    REORDERED_WEBHOOKS = "reordered_webhooks"
    LATE_SUCCESS = "late_success"
    SUCCESS_AFTER_CANCEL = "success_after_cancel"
    DOUBLE_SUCCESS = "double_success"
    REFUND_FAILS_ONCE = "refund_fails_once"
    CAPTURE_FAILS_ONCE = "capture_fails_once"
    CAPTURE_FAILS = "capture_fails"
    REDIRECT = "redirect"


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


BEHAVIOURS: dict[Method, Behaviour] = {
    Method.OK: Behaviour(),
    Method.DECLINE: Behaviour(outcome="failed", failure_reason="card_declined"),
    Method.SLOW: Behaviour(answer="slow"),
    Method.TIMEOUT_AFTER_SUCCESS: Behaviour(answer="hang"),
    Method.ERROR_THEN_OK: Behaviour(errors_before_success=2),
    Method.DUPLICATE_WEBHOOKS: Behaviour(copies_per_event=3),
    Method.REORDERED_WEBHOOKS: Behaviour(webhooks_reordered=True),
    Method.LATE_SUCCESS: Behaviour(outcome="processing", succeeds_later=True),
    Method.SUCCESS_AFTER_CANCEL: Behaviour(outcome="processing", succeeds_after_cancel=True),
    Method.DOUBLE_SUCCESS: Behaviour(charges_twice=True),
    Method.REFUND_FAILS_ONCE: Behaviour(refund_errors=1),
    Method.CAPTURE_FAILS_ONCE: Behaviour(capture_errors=1),
    Method.CAPTURE_FAILS: Behaviour(capture_errors=1_000_000),
    Method.REDIRECT: Behaviour(),
}
