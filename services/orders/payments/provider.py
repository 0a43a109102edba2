"""What a payment provider can do, and the words it may answer with. A third one is one more file.

Whatever a call returns is the provider's own word on a charge; whoever called decides what follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

ChargeStatus = Literal["requires_action", "processing", "authorised", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeOrder:
    """A charge to be made. The same key is the same charge, however often it is asked for. Without `capture` the money
    is only authorised: promised until it is captured or the charge is cancelled.
    """

    reference: str
    key: str
    amount_minor: int
    currency: str
    method: str
    token: str | None = None
    return_url: str | None = None
    capture: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCharge:
    """A charge as the provider knows it; `occurred_at_ms` is when it reached this status, and for money when the fan
    paid: late payments are judged by it. `succeeded` means that the money was taken, all of `amount_minor`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """What a verified webhook says it is about. It is a hint: the charge itself is asked for. `succeeded` is the charge
    of which it says no more than that it succeeded: whoever knows that already need not ask.
    """

    webhook_id: str
    kind: str
    reference: str
    succeeded: str | None = None


class NotSent(Exception):
    """The provider did not take the call: nothing was charged by it."""


class Unreachable(NotSent):
    """There was no connection to the provider: it has heard nothing, and nothing counts against the payment."""


class RateLimited(NotSent):
    """The provider takes fewer calls than there are: this one waits its turn and does not count as an error."""


class OutcomeUnknown(Exception):
    """The call may or may not have been carried out."""


class ProviderTimeout(OutcomeUnknown):
    """The provider was silent for too long or the connection broke: nothing it said counts against the payment."""


class ProviderRejected(Exception):
    """The provider read the call and will never carry it out; the message is its code."""


class AlreadySucceeded(Exception):
    """The charge cannot be cancelled: it succeeded before."""


class SignatureInvalid(Exception):
    """The provider did not sign these bytes, or not lately."""


class Provider(Protocol):
    """Every call raises `NotSent` or `OutcomeUnknown` when the provider does not answer as it should."""

    name: str
    methods: frozenset[str]

    async def create(self, charge: ChargeOrder) -> ProviderCharge:
        """Charges, or begins to. Raises `ProviderRejected` for what it will never charge."""

    async def fetch(self, charge_ref: str) -> ProviderCharge:
        """One charge as it is now."""

    async def find(self, reference: str) -> list[ProviderCharge]:
        """Every charge of this order that money moved or was authorised by, for sure and at once, oldest first. Those
        that still wait for the fan may be missing: by then their `charge_ref` is known, and they are fetched.
        """

    async def list_since(self, since_ms: int) -> list[ProviderCharge]:
        """Charges created at or after this time, oldest first."""

    async def cancel(self, charge_ref: str) -> ProviderCharge:
        """Gives a charge up before it succeeds, also one that is authorised. Raises `AlreadySucceeded`."""

    async def capture(self, charge_ref: str) -> ProviderCharge:
        """Takes what was authorised, all of it; doing so again is harmless. Raises `ProviderRejected`."""

    async def refund(self, charge_ref: str, *, amount_minor: int, key: str) -> str:
        """Gives money back and answers the refund's id. The same key is the same refund. Raises `ProviderRejected`."""

    def verify_webhook(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> WebhookEvent | None:
        """What this is about; nothing if it is signed, but none of our orders is meant. Raises `SignatureInvalid`."""
