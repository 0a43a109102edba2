"""Acme Pay over its JSON API, as a payment provider of Onsale."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from onsale.extend import (
    AlreadySucceeded,
    BadFeature,
    ChargeLimits,
    ChargeRequest,
    ExternalClient,
    NotReached,
    OutcomeUnknown,
    Part,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    ResponseLost,
    SignatureInvalid,
    Unreachable,
    WebhookEvent,
    verify,
)


class AcmeSettings(BaseSettings):
    """Read by orders, as `ORDERS_ACME_URL` and so on. Each has a default: the package may be installed and not used."""

    acme_url: str = Field("https://api.acme.example", description="Acme Pay's API.")
    acme_secret_key: SecretStr | None = Field(None, description="Acme Pay's API key.")
    acme_webhook_secret: SecretStr | None = Field(None, description="What Acme Pay signs its webhooks with.")


ORDERS = Part(settings=AcmeSettings)


def open_provider(client: ExternalClient, settings: AcmeSettings, timeout_s: float) -> "Acme":
    """Called once in each process of orders, if `ORDERS_PAYMENT_PROVIDERS` names `acme`."""
    key, webhook_secret = settings.acme_secret_key, settings.acme_webhook_secret
    if key is None or webhook_secret is None:
        raise BadFeature("the provider acme needs ORDERS_ACME_SECRET_KEY and ORDERS_ACME_WEBHOOK_SECRET")
    return Acme(
        client, settings.acme_url, key=key.get_secret_value(), webhook_secret=webhook_secret.get_secret_value(),
        timeout_s=timeout_s,
    )  # fmt: skip


class Acme:
    """Charges a token; all of its errors are HTTP statuses."""

    name = "acme"
    methods = frozenset({"card"})

    def __init__(self, client: ExternalClient, url: str, *, key: str, webhook_secret: str, timeout_s: float) -> None:
        self._client, self._url, self._key = client, url, key
        self._webhook_secret, self._timeout_s = webhook_secret, timeout_s

    def limits(self, currency: str) -> ChargeLimits:
        return ChargeLimits(least_minor=50, most_minor=99_999_999)

    async def create(self, charge: ChargeRequest) -> ProviderCharge:
        body = {
            "order": charge.reference, "amount": charge.amount_minor, "currency": charge.currency,
            "card": charge.token, "capture": charge.capture, "text": charge.description, "statement": charge.statement,
        }  # fmt: skip
        return _charge(await self._call("POST", "/payments", key=charge.key, body=body))

    async def fetch(self, charge_ref: str) -> ProviderCharge:
        return _charge(await self._call("GET", f"/payments/{charge_ref}"))

    async def find(self, reference: str) -> list[ProviderCharge]:
        return [_charge(each) for each in (await self._call("GET", f"/payments?order={reference}"))["payments"]]

    async def list_since(self, since_ms: int, until_ms: int | None = None) -> list[ProviderCharge]:
        span = f"since_ms={since_ms}" + (f"&until_ms={until_ms}" if until_ms else "")
        return [_charge(each) for each in (await self._call("GET", f"/payments?{span}"))["payments"]]

    async def cancel(self, charge_ref: str) -> ProviderCharge:
        try:
            return _charge(await self._call("POST", f"/payments/{charge_ref}/void"))
        except ProviderRejected as refused:
            charge = await self.fetch(charge_ref)
            if charge.status == "succeeded":
                raise AlreadySucceeded from refused
            return charge

    async def capture(self, charge_ref: str) -> ProviderCharge:
        return _charge(await self._call("POST", f"/payments/{charge_ref}/capture"))

    async def refund(self, charge_ref: str, *, amount_minor: int, key: str) -> str:
        path = f"/payments/{charge_ref}/refunds"
        return str((await self._call("POST", path, key=key, body={"amount": amount_minor}))["id"])

    def verify_webhook(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> WebhookEvent | None:
        verify(headers.get("acme-signature", ""), body, secrets=[self._webhook_secret], now_s=now_s)
        try:
            event = orjson.loads(body)
            return WebhookEvent(webhook_id=event["id"], kind=event["kind"], reference=event["payment"]["order"])
        except (ValueError, KeyError, TypeError) as broken:
            raise SignatureInvalid from broken

    async def _call(self, verb: str, path: str, *, key: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self._key}", "idempotency-key": key, "content-type": "application/json"}
        content = orjson.dumps(body) if body is not None else None
        try:
            answer = await self._client.request(
                verb, self._url + path, headers=headers, content=content, timeout_s=self._timeout_s
            )
        except NotReached as away:
            raise Unreachable("unreachable") from away
        except ResponseLost as lost:
            raise ProviderTimeout(str(lost)) from lost
        if answer.status_code == 429:
            raise RateLimited("rate-limited")
        if answer.status_code >= 500:
            raise OutcomeUnknown(f"status {answer.status_code}")
        if answer.status_code >= 400:
            raise ProviderRejected(orjson.loads(answer.content)["code"])
        return dict(orjson.loads(answer.content))


def _charge(answer: dict[str, Any]) -> ProviderCharge:
    return ProviderCharge(
        charge_ref=answer["id"], reference=answer["order"], key=answer["key"], status=answer["status"],
        amount_minor=answer["amount"], currency=answer["currency"], occurred_at_ms=answer["at_ms"],
        reason=answer.get("reason"), refunded_minor=answer.get("refunded"),
    )  # fmt: skip
