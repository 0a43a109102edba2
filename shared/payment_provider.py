"""The protocol of payment providers: what each can do, and which answers it may give.

What a call returns is the provider's own answer about a charge; orders decides what follows. A provider is a file of a
feature or of a package (`shared.features.PaymentProvider`). `verify` is for those whose webhooks are signed as Stripe's
and the sandbox's are.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from shared.rules.currencies import format_money

ChargeStatus = Literal["requires_action", "processing", "authorised", "succeeded", "failed", "cancelled"]
DisputeStatus = Literal["open", "won", "lost"]
TOLERANCE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRequest:
    """A charge to be made. The same key is the same charge, however often it is sent. Without `capture` the money is
    only authorised, until it is captured or the charge is cancelled. `description` says what it is for, in any script;
    `statement` says it for the statement of a card, in at most 22 characters of plain Latin script.
    """

    reference: str
    key: str
    amount_minor: int
    currency: str
    method: str
    token: str | None = None
    return_url: str | None = None
    capture: bool = True
    event_id: str | None = None
    description: str | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeDispute:
    """A payment that its buyer has the bank take back. `withdrawn_minor` is what the provider has taken for it by now:
    nothing for an inquiry, nothing any more once the money was reinstated.
    """

    dispute_ref: str
    status: DisputeStatus
    withdrawn_minor: int


class ChargeLimits(NamedTuple):
    """What a provider takes in one charge, in minor units: from the least to the most, in multiples of a step."""

    least_minor: int = 1
    most_minor: int = 10**12
    step_minor: int = 1

    def refusal(self, amount_minor: int, currency: str) -> str | None:
        """Why this amount can never be charged; None if it can."""
        for is_wrong, why, bound_minor in (
            (amount_minor % self.step_minor, "no multiple of", self.step_minor),
            (amount_minor < self.least_minor, "less than", self.least_minor),
            (amount_minor > self.most_minor, "more than", self.most_minor),
        ):
            if is_wrong:
                return f"{format_money(amount_minor, currency)} is {why} {format_money(bound_minor, currency)}"
        return None


NO_LIMITS = ChargeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCharge:
    """A charge as the provider knows it. `occurred_at_ms` is when it reached this status, and for money when the fan
    paid: late payments are judged by it. `succeeded` means that all of `amount_minor` was captured. `refunded_minor` is
    all that was refunded of it, by whoever: what we did not ask for was refunded outside. None if the provider does not
    say. `dispute` is the latest one.
    """

    charge_ref: str
    reference: str
    key: str
    status: ChargeStatus
    amount_minor: int
    currency: str
    occurred_at_ms: int
    reason: str | None = None
    checkout_url: str | None = None
    refunded_minor: int | None = None
    dispute: ChargeDispute | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """The order a verified webhook is about; the charge itself is read from the provider. A webhook that does not name
    its order names its charge (`charge_ref`). `succeeded` is a charge that the webhook only reports as succeeded: if
    its money is entered already, nothing needs to be read.
    """

    webhook_id: str
    kind: str
    reference: str | None = None
    charge_ref: str | None = None
    succeeded: str | None = None


class NotSent(Exception):
    """The provider did not accept the call: it charged nothing."""


class Unreachable(NotSent):
    """No connection to the provider: it received nothing, and nothing counts against the payment."""


class RateLimited(NotSent):
    """The provider limits calls: this one is repeated later and does not count as an error."""


class OutcomeUnknown(Exception):
    """The call may or may not have been carried out."""


class ProviderTimeout(OutcomeUnknown):
    """No answer in time, or the connection broke: nothing counts against the payment."""


class ProviderRejected(Exception):
    """The provider will never carry out this call; the message is its error code."""


class AlreadySucceeded(Exception):
    """The charge cannot be cancelled: it has succeeded."""


class SignatureInvalid(Exception):
    """The provider did not sign these bytes, or not recently."""


class Provider(Protocol):
    """A payment provider. Every call raises `NotSent` or `OutcomeUnknown` when the provider does not answer as it
    should.
    """

    name: str
    methods: frozenset[str]

    def limits(self, currency: str) -> ChargeLimits:
        """What it takes in one charge of this currency, by every method."""

    async def create(self, charge: ChargeRequest) -> ProviderCharge:
        """Charges, or begins to. Raises `ProviderRejected` for a charge it will never make."""

    async def fetch(self, charge_ref: str) -> ProviderCharge:
        """Reads one charge."""

    async def find(self, reference: str) -> list[ProviderCharge]:
        """Every charge of this order by which money moved or was authorised, complete and up to date, oldest first.
        Charges that still wait for the fan may be missing: their `charge_ref` is known, and they are fetched.
        """

    async def list_since(self, since_ms: int, until_ms: int | None = None) -> list[ProviderCharge]:
        """Charges created at or after this time, and before the other if that is given, oldest first."""

    async def cancel(self, charge_ref: str) -> ProviderCharge:
        """Cancels a charge before it succeeds, also an authorised one. Raises `AlreadySucceeded`."""

    async def capture(self, charge_ref: str) -> ProviderCharge:
        """Captures all that was authorised; repeating it is harmless. Raises `ProviderRejected`."""

    async def refund(self, charge_ref: str, *, amount_minor: int, key: str) -> str:
        """Refunds money and returns the refund's id. The same key is the same refund. Raises `ProviderRejected`."""

    def verify_webhook(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> WebhookEvent | None:
        """The event of a webhook; None if it is signed but about no order of ours. Raises `SignatureInvalid`."""


def verify(header: str, body: bytes, *, secrets: Sequence[str], now_s: float) -> None:
    """Raises `SignatureInvalid` unless one of the secrets signed this body within `TOLERANCE_S`: with
    `t=<unix>,v1=<hex>[,v1=<hex>]`, where `v1` is the HMAC-SHA256 over the time, a dot and the raw body.
    """
    at, given = _parts(header)
    if abs(now_s - at) > TOLERANCE_S:
        raise SignatureInvalid
    signed = f"{at}.".encode() + body
    expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    if not any(hmac.compare_digest(mac.encode(), each.encode()) for mac in given for each in expected):
        raise SignatureInvalid


def _parts(header: str) -> tuple[int, list[str]]:
    """The time and every `v1`."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) < 12):
        raise SignatureInvalid
    return int(times[0]), [value for name, _, value in parts if name == "v1"]
