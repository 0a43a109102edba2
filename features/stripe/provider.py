"""Stripe by its own client: a card by its token (a PaymentIntent), or Stripe's hosted page (a Checkout Session).

`find` does not search, as Stripe's search may lag by a minute, and in an outage by an hour. Every intent carries the
order's reference as its `transfer_group`, and the list of charges filtered by it is up to date at once. A charge is
therefore known by the id of its intent. A hosted page is known by its own id until the fan pays: before that it has no
intent.
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
from stripe import (
    APIConnectionError,
    APIError,
    AuthenticationError,
    CardError,
    HTTPClient,
    IdempotencyError,
    InvalidRequestError,
    PermissionError,  # noqa: A004 - Stripe's name for it
    RateLimitError,
    StripeClient,
    StripeError,
    StripeObject,
)

from features.stripe.orders import StripeSettings, from_stripe, stripe_limits, to_stripe
from services.orders.metrics import PROVIDER_SECONDS
from shared.features import BadFeature
from shared.http.outgoing import ExternalClient, NotReached, ResponseLost
from shared.payment_provider import (
    AlreadySucceeded,
    ChargeDispute,
    ChargeRequest,
    ChargeStatus,
    DisputeStatus,
    NotSent,
    OutcomeUnknown,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    SignatureInvalid,
    Unreachable,
    WebhookEvent,
    verify,
)
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
logging.getLogger("stripe").setLevel(logging.WARNING)  # it logs every call
API_URL = "https://api.stripe.com"
SIGNATURE_HEADER = "stripe-signature"
PAID = "payment_intent.succeeded"
PAGE_MAX = 100
CHARGE: Final = ["latest_charge"]
OF_PAGE: Final = ["payment_intent.latest_charge"]
STATUSES: Final[dict[str, ChargeStatus]] = {
    "requires_payment_method": "failed", "requires_confirmation": "processing", "requires_action": "requires_action",
    "processing": "processing", "requires_capture": "authorised", "canceled": "cancelled", "succeeded": "succeeded",
}  # fmt: skip
DISPUTE_STATUSES: Final[dict[str, DisputeStatus]] = {
    "lost": "lost", "won": "won", "warning_closed": "won", "prevented": "won",
}  # fmt: skip
MONEY: Final = ("authorised", "succeeded")
Answer = dict[str, Any]


def open_provider(client: ExternalClient, settings: StripeSettings, timeout_s: float) -> "Stripe":
    key, secrets = settings.stripe_secret_key, settings.stripe_webhook_secrets
    if not (key and secrets):
        raise BadFeature("the provider stripe needs stripe_secret_key and stripe_webhook_secrets")
    return Stripe(
        client, API_URL, secret_key=key.get_secret_value(), timeout_s=timeout_s,
        webhook_secrets=[secret.get_secret_value() for secret in secrets],
    )  # fmt: skip


class Stripe:
    """`card` charges a payment method's token, by way of the bank's page if there is a `return_url`; `redirect` sends
    the fan to a page of Stripe.
    """

    name = "stripe"
    methods = frozenset({"card", "redirect"})
    limits = staticmethod(stripe_limits)

    def __init__(
        self, client: ExternalClient, url: str, *, secret_key: str, webhook_secrets: Sequence[str], timeout_s: float
    ) -> None:
        self._api = StripeClient(
            secret_key, http_client=StripeHttpClient(client, timeout_s), base_addresses={"api": url.rstrip("/")},
            max_network_retries=0,
        ).v1  # fmt: skip
        self._webhook_secrets = webhook_secrets

    async def create(self, charge: ChargeRequest) -> ProviderCharge:
        return await (self._open_hosted_page(charge) if charge.method == "redirect" else self._charge_card(charge))

    async def _charge_card(self, charge: ChargeRequest) -> ProviderCharge:
        """A declined card leaves an intent behind, which has the reason."""
        if charge.token is None:
            raise ProviderRejected("token_missing")
        by_page = charge.return_url is not None
        params: Any = _intent_of(charge) | ({"return_url": charge.return_url} if by_page else {}) | {
            "amount": to_stripe(charge.amount_minor, charge.currency), "currency": charge.currency.lower(),
            "payment_method": charge.token, "confirm": True, "error_on_requires_action": not by_page, "expand": CHARGE,
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "always" if by_page else "never"},
        }  # fmt: skip
        call = self._api.payment_intents.create_async(params, {"idempotency_key": charge.key})
        try:
            return charge_of(await self._call("create", call))
        except ProviderRejected as declined:
            failed = declined.__cause__
            error = failed.error.to_dict() if isinstance(failed, CardError) and failed.error else {}
            if not error.get("payment_intent"):
                raise
            return replace(charge_of(error["payment_intent"]), reason=str(declined))

    async def _open_hosted_page(self, charge: ChargeRequest) -> ProviderCharge:
        if charge.return_url is None:
            raise ProviderRejected("return_url_missing")
        amount = to_stripe(charge.amount_minor, charge.currency)
        price = {
            "currency": charge.currency.lower(), "unit_amount": amount,
            "product_data": {"name": charge.description or f"Order {charge.reference}"},
        }  # fmt: skip
        params: Any = {
            "mode": "payment", "line_items": [{"quantity": 1, "price_data": price}], "success_url": charge.return_url,
            "cancel_url": charge.return_url, "client_reference_id": charge.reference, "metadata": _metadata(charge),
            "payment_intent_data": _intent_of(charge), "expand": OF_PAGE,
        }  # fmt: skip
        call = self._api.checkout.sessions.create_async(params, {"idempotency_key": charge.key})
        return charge_of(await self._call("create", call))

    async def fetch(self, charge_ref: str) -> ProviderCharge:
        if _is_hosted_page(charge_ref):
            page = self._api.checkout.sessions.retrieve_async(charge_ref, {"expand": OF_PAGE})
            answer = await self._call("fetch", page)
        else:
            answer = await self._intent(charge_ref)
        await self._add_disputes([answer.get("payment_intent", answer)])
        return charge_of(answer)

    async def _add_disputes(self, intents: Iterable[Answer | None]) -> None:
        """Reads the disputes of those intents that have any, newest first."""
        for intent in intents:
            paid = (intent or {}).get("latest_charge")
            if intent and isinstance(paid, dict) and paid.get("disputed"):
                query: Any = {"payment_intent": intent["id"], "limit": PAGE_MAX}
                intent["disputes"] = (await self._call("disputes", self._api.disputes.list_async(query)))["data"]

    async def _intent(self, charge_ref: str) -> Answer:
        return await self._call("fetch", self._api.payment_intents.retrieve_async(charge_ref, {"expand": CHARGE}))

    async def find(self, reference: str) -> list[ProviderCharge]:
        expand = ["data.payment_intent.latest_charge"]
        params: Any = {"transfer_group": reference, "limit": PAGE_MAX, "expand": expand}
        charges = (await self._call("find", self._api.charges.list_async(params)))["data"]
        intents = {charge["payment_intent"]["id"]: charge["payment_intent"] for charge in reversed(charges)}
        await self._add_disputes(intents.values())
        return charges_of(intents.values())

    async def list_since(self, since_ms: int, until_ms: int | None = None) -> list[ProviderCharge]:
        """Of cards all, of hosted pages those that were paid; none that are not ours."""
        found: list[ProviderCharge] = []
        created = {"gte": since_ms // 1000} | ({"lte": until_ms // 1000} if until_ms else {})
        params: Any = {"created": created, "limit": PAGE_MAX, "expand": ["data.latest_charge"]}
        while True:
            page = await self._call("list", self._api.payment_intents.list_async(params))
            ours = [intent for intent in page["data"] if intent["metadata"].get("reference")]
            await self._add_disputes(ours)
            found += charges_of(ours)
            if not (page["has_more"] and page["data"]):
                return found[::-1]
            params["starting_after"] = page["data"][-1]["id"]

    async def cancel(self, charge_ref: str) -> ProviderCharge:
        """A charge that cannot be cancelled is fetched: it has succeeded, or ended otherwise."""
        if _is_hosted_page(charge_ref):
            call: Awaitable[StripeObject] = self._api.checkout.sessions.expire_async(charge_ref, {"expand": OF_PAGE})
        else:
            call = self._api.payment_intents.cancel_async(charge_ref, {"expand": CHARGE})
        try:
            return charge_of(await self._call("cancel", call))
        except ProviderRejected as refused:
            charge = await self.fetch(charge_ref)
            if charge.status == "succeeded":
                raise AlreadySucceeded from refused
            return await self.cancel(charge.charge_ref) if charge.charge_ref != charge_ref else charge

    async def capture(self, charge_ref: str) -> ProviderCharge:
        """Without an idempotency key: with one Stripe would repeat a failure for a day, and a second capture is refused
        anyway.
        """
        try:
            call = self._api.payment_intents.capture_async(charge_ref, {"expand": CHARGE})
            return charge_of(await self._call("capture", call))
        except ProviderRejected:
            charge = await self.fetch(charge_ref)
            if charge.status == "succeeded":
                return charge
            raise

    async def refund(self, charge_ref: str, *, amount_minor: int, key: str) -> str:
        """Stripe forgets idempotency keys after a day, so a refund carries its key as metadata, which is looked up
        first.
        """
        query: Any = {"payment_intent": charge_ref, "limit": PAGE_MAX}
        for refund in (await self._call("refunds", self._api.refunds.list_async(query)))["data"]:
            if refund["metadata"].get("key") == key:
                return refund_id_of(refund)
        intent = await self._intent(charge_ref)
        params: Any = {
            "payment_intent": charge_ref, "amount": to_stripe(amount_minor, str(intent["currency"]).upper()),
            "metadata": {"key": key, "reference": intent["metadata"].get("reference", "")},
        }  # fmt: skip
        return refund_id_of(
            await self._call("refund", self._api.refunds.create_async(params, {"idempotency_key": key}))
        )

    def verify_webhook(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> WebhookEvent | None:
        """An event about no order of ours belongs to another use of the same account. Disputes, and refunds made in the
        dashboard, name only the intent.
        """
        verify(headers.get(SIGNATURE_HEADER, ""), body, secrets=self._webhook_secrets, now_s=now_s)
        try:
            event = orjson.loads(body)
            kind, about = str(event["type"]), event["data"]["object"]
            reference = (about.get("metadata") or {}).get("reference")
            paid = str(about["id"]) if kind == PAID else None
            intent = about.get("payment_intent")
            return WebhookEvent(
                webhook_id=str(event["id"]), kind=kind, reference=str(reference) if reference else None,
                charge_ref=str(intent) if intent and not reference else None, succeeded=paid,
            ) if reference or intent else None  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as failed:
            raise SignatureInvalid from failed

    async def _call(self, call: str, request: Awaitable[StripeObject]) -> Answer:
        try:
            with PROVIDER_SECONDS.labels(self.name, call).time():
                return (await request).to_dict()
        except StripeError as failed:
            raise provider_error(failed) from failed


class StripeHttpClient(HTTPClient):
    """Stripe's client over our own connections, so that their limits hold here too. Nothing is retried here."""

    name = "aiohttp"

    def __init__(self, client: ExternalClient, timeout_s: float) -> None:
        super().__init__()
        self._client, self._timeout_s = client, timeout_s

    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        try:
            answer = await self._client.request(
                method, url, headers=headers, content=post_data.encode() if post_data else None,
                timeout_s=self._timeout_s,
            )  # fmt: skip
        except (NotReached, ResponseLost) as lost:
            raise APIConnectionError(str(lost)) from lost  # type: ignore[no-untyped-call]
        return answer.content, answer.status_code, answer.headers


def _metadata(charge: ChargeRequest) -> dict[str, str]:
    event = {"event_id": charge.event_id} if charge.event_id else {}
    return {"reference": charge.reference, "key": charge.key} | event


def _intent_of(charge: ChargeRequest) -> Answer:
    """What every intent of ours carries, so that it can be recognised, also by its fan on the statement of a card;
    those of a hosted page are marked.
    """
    names = _metadata(charge) | ({"page": "yes"} if charge.method == "redirect" else {})
    capture_method = "automatic" if charge.capture else "manual"
    words = {"description": charge.description, "statement_descriptor_suffix": charge.statement}
    known = {name: text for name, text in words.items() if text}
    return {"metadata": names, "transfer_group": charge.reference, "capture_method": capture_method} | known


def _is_hosted_page(charge_ref: str) -> bool:
    return charge_ref.startswith("cs_")


# -- Stripe's answers, as the protocol has them ------------------------------------------------------------------------


def provider_error(failed: StripeError) -> Exception:
    """The protocol's error. A conflict (409) means that the first call with this key is still running; a key that was
    used with other parameters (the event was renamed since), that its call has to be looked up.
    """
    error: Answer = failed.error.to_dict() if failed.error else {}
    code = str(error.get("decline_code") or error.get("code") or "refused")
    match failed:
        case APIConnectionError():
            never_sent = isinstance(failed.__cause__, NotReached)
            return Unreachable("unreachable") if never_sent else ProviderTimeout(str(failed))
        case RateLimitError():
            return RateLimited("rate-limited")
        case AuthenticationError() | PermissionError():
            log.error("stripe.credentials_refused")
            return NotSent("credentials-refused")
        case CardError() | InvalidRequestError():
            return ProviderRejected(code)
        case IdempotencyError():
            return OutcomeUnknown(code)
        case APIError(http_status=409):
            return ProviderTimeout("in progress")
        case _:
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
