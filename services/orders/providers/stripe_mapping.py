"""Maps Stripe's answers to the provider protocol: intents, hosted pages, refunds and errors."""

from collections.abc import Iterable
from typing import Any, Final

from stripe import (
    APIConnectionError,
    APIError,
    AuthenticationError,
    CardError,
    IdempotencyError,
    InvalidRequestError,
    PermissionError,  # noqa: A004 - Stripe's name for it
    RateLimitError,
    StripeError,
)

from services.orders.providers.provider import (
    ChargeDispute,
    ChargeStatus,
    DisputeStatus,
    NotSent,
    OutcomeUnknown,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from services.orders.providers.stripe_amounts import from_stripe
from shared.http.outgoing import NotReached
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
STATUSES: Final[dict[str, ChargeStatus]] = {
    "requires_payment_method": "failed", "requires_confirmation": "processing", "requires_action": "requires_action",
    "processing": "processing", "requires_capture": "authorised", "canceled": "cancelled", "succeeded": "succeeded",
}  # fmt: skip
DISPUTE_STATUSES: Final[dict[str, DisputeStatus]] = {
    "lost": "lost", "won": "won", "warning_closed": "won", "prevented": "won",
}  # fmt: skip
MONEY: Final = ("authorised", "succeeded")
Answer = dict[str, Any]


class Declined(ProviderRejected):
    """The card was declined; `intent` is the failed payment."""

    def __init__(self, code: str, intent: Answer) -> None:
        super().__init__(code)
        self.intent = intent


class KeyReused(ProviderRejected):
    """This idempotency key came with other parameters before."""


def provider_error(failed: StripeError) -> Exception:
    """The protocol's error. A conflict (409) means that the first call with this key is still running."""
    error: Answer = failed.error.to_dict() if failed.error else {}
    code = str(error.get("decline_code") or error.get("code") or "refused")
    if isinstance(failed, APIConnectionError):
        return Unreachable("unreachable") if isinstance(failed.__cause__, NotReached) else ProviderTimeout(str(failed))
    if isinstance(failed, RateLimitError):
        return RateLimited("rate-limited")
    if isinstance(failed, AuthenticationError | PermissionError):
        log.error("stripe.credentials_refused")
        return NotSent("credentials-refused")
    if isinstance(failed, CardError):
        return Declined(code, error["payment_intent"]) if error.get("payment_intent") else ProviderRejected(code)
    if isinstance(failed, IdempotencyError):
        return KeyReused(code)
    if isinstance(failed, InvalidRequestError):
        return ProviderRejected(code)
    if isinstance(failed, APIError) and failed.http_status == 409:
        return ProviderTimeout("in progress")
    return OutcomeUnknown(f"status {failed.http_status}")


def charge_of(answer: Answer) -> ProviderCharge:
    """The charge of an intent or a hosted page. What an intent's `disputes` say has to be put there before."""
    try:
        return _of_page(answer) if answer["object"] == "checkout.session" else _of_intent(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as broken:
        raise OutcomeUnknown("unreadable answer") from broken


def charges_of(intents: Iterable[Answer]) -> list[ProviderCharge]:
    """The charges of these intents, except those of hosted pages that moved no money: the page itself is the charge
    then.
    """
    found = [(charge_of(intent), bool(intent["metadata"].get("page"))) for intent in intents]
    return [charge for charge, on_page in found if charge.status in MONEY or not on_page]


def _of_intent(intent: Answer) -> ProviderCharge:
    """Late payments are judged by when the fan paid, which is when Stripe made the charge."""
    status, names, paid = STATUSES[intent["status"]], intent["metadata"], intent.get("latest_charge")
    amount = {"succeeded": "amount_received", "authorised": "amount_capturable"}.get(status, "amount")
    since_s = intent["created"]
    if status in MONEY and isinstance(paid, dict):
        since_s = paid["created"]
    elif status == "cancelled":
        since_s = intent.get("canceled_at") or since_s
    refunded = paid.get("amount_refunded") if isinstance(paid, dict) else None
    error = intent.get("last_payment_error") or {}
    step = (intent.get("next_action") or {}).get("redirect_to_url") or {}
    currency = str(intent["currency"]).upper()
    return ProviderCharge(
        charge_ref=intent["id"], reference=names.get("reference") or intent.get("transfer_group") or "",
        key=names.get("key") or intent["id"], status=status, currency=currency,
        amount_minor=from_stripe(intent[amount], currency), occurred_at_ms=int(since_s) * 1000,
        reason=str(error.get("decline_code") or error.get("code") or "declined") if status == "failed" else None,
        checkout_url=step.get("url") if status == "requires_action" else None,
        refunded_minor=None if refunded is None else from_stripe(refunded, currency),
        dispute=_dispute_of(intent.get("disputes") or [], currency),
    )  # fmt: skip


def is_disputed(intent: Answer | None) -> bool:
    paid = (intent or {}).get("latest_charge")
    return isinstance(paid, dict) and bool(paid.get("disputed"))


def _dispute_of(disputes: list[Answer], currency: str) -> ChargeDispute | None:
    """The latest dispute. Its money is withdrawn while its entries in Stripe's balance, which may be in another
    currency, sum to less than nothing.
    """
    if not disputes:
        return None
    latest = disputes[0]
    is_withdrawn = sum(entry["amount"] for entry in latest["balance_transactions"]) < 0
    return ChargeDispute(
        dispute_ref=latest["id"], status=DISPUTE_STATUSES.get(latest["status"], "open"),
        withdrawn_minor=from_stripe(latest["amount"], currency) if is_withdrawn else 0,
    )  # fmt: skip


def _of_page(page: Answer) -> ProviderCharge:
    """The charge of a page until money moves. An expired page may still have a payment under way; a declined card may
    be retried.
    """
    intent = page.get("payment_intent")
    of_intent = STATUSES[intent["status"]] if intent else "processing"
    if intent and of_intent in MONEY:
        return _of_intent(intent)
    by_page: dict[str, ChargeStatus] = {"open": "requires_action", "expired": "cancelled", "complete": of_intent}
    status = "processing" if intent and of_intent == "processing" else by_page[page["status"]]
    currency = str(page["currency"]).upper()
    return ProviderCharge(
        charge_ref=page["id"], reference=page["metadata"]["reference"], key=page["metadata"]["key"], status=status,
        amount_minor=from_stripe(page["amount_total"], currency), currency=currency,
        occurred_at_ms=int(page["created"]) * 1000, reason="declined" if status == "failed" else None,
        checkout_url=page.get("url") if status == "requires_action" else None,
    )  # fmt: skip


def refund_id_of(refund: Answer) -> str:
    if refund["status"] in ("failed", "canceled"):
        raise ProviderRejected(f"refund-{refund['status']}")
    return str(refund["id"])
