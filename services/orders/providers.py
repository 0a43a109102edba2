"""The payment providers of this process: those of features that the setting `payment_providers` names, and the sandbox
over its HTTP API.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson

from services.orders.metrics import PROVIDER_SECONDS
from services.orders.settings import Settings
from shared.features import BadFeature, PaymentProvider, load, payment_providers
from shared.http.outgoing import ExternalClient, ExternalResponse, NotReached, ResponseLost
from shared.payment_provider import (
    NO_LIMITS,
    AlreadySucceeded,
    ChargeDispute,
    ChargeLimits,
    ChargeRequest,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    SignatureInvalid,
    Unreachable,
    WebhookEvent,
    verify,
)
from shared.runtime.clock import from_datetime, rfc3339

ANYTHING = "none"  # as `sandbox_limits`
SIGNATURE_HEADER = "sandbox-signature"
SUCCEEDED = "charge.succeeded"
KEY_REUSED = "idempotency_key_reused"
PAGE_MAX = 1000
METHODS = frozenset({
    "ok", "decline", "slow", "timeout_after_success", "error_then_ok", "duplicate_webhooks", "reordered_webhooks",
    "late_success", "success_after_cancel", "double_success", "refund_fails_once", "capture_fails_once",
    "capture_fails", "redirect",
})  # fmt: skip


class Sandbox:
    """A provider with one method for each way in which real ones misbehave."""

    name = "sandbox"
    methods = METHODS

    def __init__(
        self, client: ExternalClient, url: str, *, secrets: Sequence[str], timeout_s: float,
        limits: Callable[[str], ChargeLimits] = lambda _: NO_LIMITS,
    ) -> None:  # fmt: skip
        self._client, self._url, self._secrets = client, url.rstrip("/"), secrets
        self._timeout_s, self.limits = timeout_s, limits

    async def create(self, charge: ChargeRequest) -> ProviderCharge:
        body = {name: value for name, value in asdict(charge).items() if value is not None and name != "key"}
        try:
            return _charge(await self._call("create", "POST", "/charges", key=charge.key, body=body))
        except ProviderRejected as refused:
            if str(refused) == KEY_REUSED:  # the first call is there; a lookup says what became of it
                raise OutcomeUnknown(KEY_REUSED) from refused
            raise

    async def fetch(self, charge_ref: str) -> ProviderCharge:
        return _charge(await self._call("fetch", "GET", f"/charges/{quote(charge_ref, safe='')}"))

    async def find(self, reference: str) -> list[ProviderCharge]:
        path = f"/charges?reference={quote(reference, safe='')}&limit={PAGE_MAX}"
        return [_charge(charge) for charge in (await self._call("find", "GET", path))["charges"]]

    async def list_since(self, since_ms: int, until_ms: int | None = None) -> list[ProviderCharge]:
        found: list[ProviderCharge] = []
        since, until = rfc3339(since_ms), until_ms and rfc3339(until_ms)
        while True:
            page = await self._call("list", "GET", f"/charges?since={quote(since, safe='')}&limit={PAGE_MAX}")
            wanted = [charge for charge in page["charges"] if until is None or charge["created_at"] < until]
            found += map(_charge, wanted)
            if not (page["has_more"] and wanted and len(wanted) == len(page["charges"])):
                return found
            since = wanted[-1]["id"]

    async def cancel(self, charge_ref: str) -> ProviderCharge:
        try:
            return _charge(await self._call("cancel", "POST", f"/charges/{quote(charge_ref, safe='')}/cancel"))
        except ProviderRejected as refused:
            if str(refused) == "already_succeeded":
                raise AlreadySucceeded from refused
            return await self.fetch(charge_ref)

    async def capture(self, charge_ref: str) -> ProviderCharge:
        return _charge(await self._call("capture", "POST", f"/charges/{quote(charge_ref, safe='')}/capture"))

    async def refund(self, charge_ref: str, *, amount_minor: int, key: str) -> str:
        path = f"/charges/{quote(charge_ref, safe='')}/refunds"
        refund = await self._call("refund", "POST", path, key=key, body={"amount_minor": amount_minor})
        return str(refund["id"])

    def verify_webhook(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> WebhookEvent:
        verify(headers.get(SIGNATURE_HEADER, ""), body, secrets=self._secrets, now_s=now_s)
        try:
            event = orjson.loads(body)
            kind, charge = str(event["type"]), event["data"]["charge"]
            return WebhookEvent(
                webhook_id=str(event["id"]), kind=kind, reference=str(charge["reference"]),
                succeeded=str(charge["id"]) if kind == SUCCEEDED and "id" in charge else None,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError) as failed:
            raise SignatureInvalid from failed

    async def _call(
        self, call: str, method: str, path: str, *, key: str | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
        content = orjson.dumps(body) if body is not None else None
        try:
            with PROVIDER_SECONDS.labels(self.name, call).time():
                response = await self._client.request(
                    method, self._url + path, headers=headers, content=content, timeout_s=self._timeout_s
                )
        except NotReached as away:
            raise Unreachable("unreachable") from away
        except ResponseLost as lost:
            raise ProviderTimeout(str(lost)) from lost
        return _answer(response)


def _answer(response: ExternalResponse) -> dict[str, Any]:
    if response.status_code == 429:
        raise RateLimited("rate-limited")
    if response.status_code >= 500:
        raise OutcomeUnknown(f"status {response.status_code}")
    try:
        answer: dict[str, Any] = orjson.loads(response.content)
        if response.status_code >= 400:
            raise ProviderRejected(str(answer["error"]["code"]))
    except (ValueError, KeyError, TypeError) as failed:
        raise OutcomeUnknown("unreadable answer") from failed
    return answer


def _charge(answer: dict[str, Any]) -> ProviderCharge:
    dispute = answer.get("dispute")
    return ProviderCharge(
        charge_ref=answer["id"],
        reference=answer["reference"],
        key=answer["idempotency_key"],
        status="authorised" if answer["status"] == "succeeded" and not answer["captured_minor"] else answer["status"],
        amount_minor=answer["amount_minor"],
        currency=answer["currency"],
        occurred_at_ms=from_datetime(datetime.fromisoformat(answer["occurred_at"])),
        reason=answer["failure_reason"],
        checkout_url=answer["checkout_url"],
        refunded_minor=answer["refunded_minor"],
        dispute=dispute
        and ChargeDispute(
            dispute_ref=dispute["id"], status=dispute["status"], withdrawn_minor=dispute["withdrawn_minor"]
        ),
    )


def open_providers(client: ExternalClient, settings: Settings) -> dict[str, Provider]:
    """The providers of `payment_providers`, by name. Raises `BadFeature` for one that is unknown or incomplete."""
    known, opened = payment_providers(settings.features_off), dict[str, Provider]()
    for name in settings.payment_providers:
        if name == Sandbox.name:
            opened[name] = Sandbox(
                client, settings.sandbox_url, secrets=settings.sandbox_webhook_secrets,
                timeout_s=settings.provider_timeout_s, limits=_limits_of(settings.sandbox_limits, known),
            )  # fmt: skip
        elif name in known:
            opened[name] = load(known[name].open)(client, settings, settings.provider_timeout_s)
        else:
            names = ", ".join((Sandbox.name, *known))
            raise BadFeature(f"payment_providers: there is no provider named {name}; there are {names}")
        if not hasattr(opened[name], "limits"):
            raise BadFeature(f"payment_providers: {name} does not say what it takes in one charge: limits(currency)")
    return opened


def _limits_of(name: str, known: Mapping[str, PaymentProvider]) -> Callable[[str], ChargeLimits]:
    """What the sandbox takes: anything, or what this provider does."""
    if name == ANYTHING:
        return lambda _: NO_LIMITS
    if name not in known or (where := known[name].limits) is None:
        raise BadFeature(f"sandbox_limits: no provider named {name} says beforehand what it takes")
    limits: Callable[[str], ChargeLimits] = load(where)
    return limits
