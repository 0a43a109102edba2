"""Charges, syncs, captures and cancels at the payment provider, and writes down whatever it answers.

`unknown` is written before a charge is sent, not after: a crash during the call leaves the true status behind.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from services.orders.metrics import REVIEWS
from services.orders.order.next_step import CAPTURES_MAX, Attempt, Order
from services.orders.order.repository import OrderRepository
from services.orders.order.states import LIVE_STATUSES
from services.orders.order.updates import Lease, OrderUpdate
from services.orders.payments.provider import (
    AlreadySucceeded,
    ChargeRequest,
    ChargeStatus,
    NotSent,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from services.orders.payments.purchase_text import description, statement
from services.orders.refunds.plan import OUTSIDE
from services.orders.tickets.show import ShowCache, ShowInfo
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
REFERENCE_PLACEHOLDER = (
    "{reference}"  # in a return_url: replaced by the reference, which the client cannot know before ordering
)
Failpoint = Callable[[str, str], Awaitable[None]]


async def no_failpoint(name: str, reference: str) -> None:
    """A failpoint is where a test may stop an order's processing; this one does nothing."""


@dataclass(frozen=True, slots=True)
class ChargeExecutor:
    """The steps that call a provider about an attempt."""

    repository: OrderRepository
    providers: Mapping[str, Provider]
    payment_retries: int
    failpoint: Failpoint
    shows: ShowCache
    queue_mail: Callable[..., None]

    async def charge(self, lease: Lease, order: Order) -> OrderUpdate | None:
        """Sends the charge and returns the provider's answer as an update that is not written yet; None if there is no
        outcome. The attempt is written as `unknown` before the call.
        """
        attempt = _attempt(order)
        if attempt.status == "created":
            await self._write_attempt(lease, order, attempt, status="unknown")
            order = replace(order, attempts=(*order.attempts[:-1], replace(attempt, status="unknown")))
        request = _charge_request(order, attempt, await self.shows.read(order.event_id))
        await self.failpoint("before the provider", order.reference)
        try:
            charge = await self.providers[attempt.provider].create(request)
        except (NotSent, OutcomeUnknown) as failed:
            never_sent = isinstance(failed, NotSent) and (lease.is_first_call or attempt.status == "created")
            status = "created" if never_sent else "unknown"
            await self._after_failed_charge(lease, order, replace(attempt, status=status), failed)
            return None
        except ProviderRejected as refused:
            await self._write_attempt(lease, order, attempt, status="failed", reason=str(refused))
            return None
        await self.failpoint("after the provider", order.reference)
        return OrderUpdate(lease, order).record_charges(attempt.provider, [charge])

    async def _after_failed_charge(self, lease: Lease, order: Order, attempt: Attempt, failed: Exception) -> None:
        """Raises to retry later, for as long as the provider is unreachable. An error counts against the attempt only
        if the provider answers a lookup right after it; after `payment_retries` of those the attempt has failed.
        """
        await self._write_attempt(lease, order, attempt, status=attempt.status)
        if attempt.provider_key in await self._statuses_after(failed, lease):
            return
        errors = attempt.errors + 1
        if errors > self.payment_retries:
            await self._write_attempt(lease, order, attempt, status="failed", reason="provider-error")
            return
        await self._write_attempt(lease, order, attempt, errors=errors)
        raise failed

    async def _statuses_after(self, failed: Exception, lease: Lease) -> dict[str, ChargeStatus]:
        """The status of each charge, by key. Raises `failed` if it says that a lookup would fail, too."""
        if isinstance(failed, ProviderTimeout | Unreachable | RateLimited):
            raise failed
        order = await self.repository.read_leased(lease)
        _, found = await self._sync_charges(lease, order)
        return {charge.key: charge.status for _, charge in found}

    async def sync_provider(self, lease: Lease, order: Order) -> None:
        """Reads every charge of this order. An unknown attempt that no provider has is cancelled, and so is an
        authorisation of an attempt that has ended or is not ours.
        """
        order, found = await self._sync_charges(lease, order)
        attempt = _attempt(order)
        if attempt.status == "unknown" and attempt.provider_key not in {charge.key for _, charge in found}:
            await self._write_attempt(lease, order, attempt, status="cancelled", reason=None)
        for name, charge in found:
            is_live = attempt.status in LIVE_STATUSES and charge.key == attempt.provider_key
            if charge.status == "authorised" and not is_live:
                await self._cancel_at_provider(lease, order, name, charge.charge_ref)

    async def _sync_charges(self, lease: Lease, order: Order) -> tuple[Order, list[tuple[str, ProviderCharge]]]:
        """Reads every charge under this reference at all providers, the live one by its own id, and records them.
        Returns the order with its status as it is then.
        """
        charges: list[tuple[str, ProviderCharge]] = []
        for name in order.providers:
            charges += [(name, charge) for charge in await self.providers[name].find(order.reference)]
        attempt, keys = _attempt(order), {charge.key for _, charge in charges}
        if attempt.status in LIVE_STATUSES and attempt.provider_ref and attempt.provider_key not in keys:
            charges.append((attempt.provider, await self._fetch(attempt.provider, attempt.provider_ref)))
        for name in order.providers:
            of_provider = [charge for owner, charge in charges if owner == name]
            order = await self._record_charges(lease, order, name, of_provider)
        return order, charges

    async def cancel_charge(self, lease: Lease, order: Order) -> None:
        """Raises `OutcomeUnknown` to retry later if the charge cannot be cancelled yet."""
        attempt = _attempt(order)
        assert attempt.provider_ref is not None
        charge = await self._cancel_at_provider(lease, order, attempt.provider, attempt.provider_ref)
        if charge.status in LIVE_STATUSES:
            raise OutcomeUnknown(f"still {charge.status}")

    async def _cancel_at_provider(self, lease: Lease, order: Order, name: str, charge_ref: str) -> ProviderCharge:
        try:
            charge = await self.providers[name].cancel(charge_ref)
        except AlreadySucceeded:
            charge = await self._fetch(name, charge_ref)
        await self._record_charges(lease, order, name, [charge])
        return charge

    async def _fetch(self, name: str, charge_ref: str) -> ProviderCharge:
        try:
            return await self.providers[name].fetch(charge_ref)
        except ProviderRejected as lost:
            raise OutcomeUnknown(f"the provider does not know {charge_ref} any more") from lost

    async def capture(self, lease: Lease, order: Order) -> None:
        """Captures what was authorised. An error counts only if the provider answers a lookup right after it; a
        rejection is final.
        """
        attempt = _attempt(order)
        assert attempt.provider_ref is not None
        try:
            charge = await self.providers[attempt.provider].capture(attempt.provider_ref)
        except ProviderRejected:
            await self._write_attempt(lease, order, attempt, errors=CAPTURES_MAX)
            return
        except (NotSent, OutcomeUnknown) as failed:
            await self._after_failed_capture(lease, order, attempt, failed)
            return
        await self.failpoint("after the capture", order.reference)
        await self._record_charges(lease, order, attempt.provider, [charge])

    async def _after_failed_capture(self, lease: Lease, order: Order, attempt: Attempt, failed: Exception) -> None:
        now = await self._statuses_after(failed, lease)
        if now.get(attempt.provider_key) == "authorised":
            await self._write_attempt(lease, order, attempt, errors=attempt.errors + 1)
            raise failed

    async def _record_charges(self, lease: Lease, order: Order, provider: str, charges: list[ProviderCharge]) -> Order:
        """Writes what is new; if nothing is, only that a sync that was requested is done."""
        update = OrderUpdate(lease, order).record_charges(provider, charges)
        update.bumps_version = update.changes_payment
        if update.bumps_version or order.sync_requested:
            report_outside(update, self.queue_mail)
            await self.repository.write(update)
        return replace(order, status=update.columns.get("to", order.status))

    async def abandon_attempt(self, lease: Lease, order: Order) -> None:
        await self._write_attempt(lease, order, _attempt(order), status="cancelled", reason=None)

    async def _write_attempt(self, lease: Lease, order: Order, attempt: Attempt, **sets: object) -> None:
        await self.repository.write(OrderUpdate(lease, order).set_attempt(attempt, **sets))


def report_outside(update: OrderUpdate, queue_mail: Callable[..., None]) -> None:
    """Tells the customer of a refund outside that ended the sale, and the operators what they have to decide."""
    if update.columns.get("to") == "refunded":
        amount_minor = sum(refund["amount_minor"] for refund in update.parts["refunds_requested"])
        queue_mail(update, "refunded", about=OUTSIDE, amount_minor=amount_minor)
    if reason := update.columns.get("end_reason"):
        REVIEWS.labels(reason).inc()
        log.warning("order.review", reference=update.order.reference, reason=reason)


def _attempt(order: Order) -> Attempt:
    assert order.attempt is not None
    return order.attempt


def _charge_request(order: Order, attempt: Attempt, show: ShowInfo) -> ChargeRequest:
    return ChargeRequest(
        reference=order.reference,
        key=attempt.provider_key,
        amount_minor=attempt.amount_minor,
        currency=attempt.currency,
        method=attempt.method,
        token=attempt.token,
        return_url=attempt.return_url and attempt.return_url.replace(REFERENCE_PLACEHOLDER, order.reference),
        capture=attempt.capture,
        event_id=order.event_id,
        description=description(show, order.reference),
        statement=statement(show, order.reference),
    )
