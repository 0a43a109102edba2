"""The cashier's side of the provider: charging, asking, calling off; and writing down whatever it answers.

`unknown` is written before a call to charge, not after it: whoever dies in the call leaves the truth behind.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from services.orders.order.next_step import CAPTURES_MAX, Attempt, Order
from services.orders.order.repository import OrderRepository
from services.orders.order.states import LIVE
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate
from services.orders.payments.provider import (
    AlreadySucceeded,
    ChargeOrder,
    NotSent,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from services.orders.settings import Settings

REFERENCE = "{reference}"  # where a return_url has it stands the order's own: before ordering nobody knows it
Failpoint = Callable[[str, str], Awaitable[None]]


async def no_failpoint(name: str, reference: str) -> None:
    """Where a test may stop the process in the middle of an order; nothing happens elsewhere."""


class ChargeExecutor:
    """The steps that talk to a provider about an attempt."""

    def __init__(
        self, *, book: OrderRepository, providers: Mapping[str, Provider], settings: Settings, failpoint: Failpoint
    ) -> None:
        self._book, self._providers, self._settings, self._failpoint = book, providers, settings, failpoint

    async def charge(self, lease: Lease, seen: Order) -> OrderUpdate | None:
        """What the provider says of it, not yet written. The attempt is written down as unknown before the call: if we
        die in it, that is what it is.
        """
        attempt = _attempt(seen)
        if attempt.status == "created":
            await self._write(lease, seen, attempt, status="unknown")
            seen = replace(seen, attempts=(*seen.attempts[:-1], replace(attempt, status="unknown")))
        await self._failpoint("before the provider", seen.reference)
        try:
            charge = await self._providers[attempt.provider].create(_charge_order(seen, attempt))
        except (NotSent, OutcomeUnknown) as failed:
            never_asked = isinstance(failed, NotSent) and (lease.is_first_call or attempt.status == "created")
            status = "created" if never_asked else "unknown"
            await self._not_charged(lease, seen, replace(attempt, status=status), failed)
            return None
        except ProviderRejected as refused:
            await self._write(lease, seen, attempt, status="failed", reason=str(refused))
            return None
        await self._failpoint("after the provider", seen.reference)
        return OrderUpdate(lease, seen).charges(attempt.provider, [charge])

    async def _not_charged(self, lease: Lease, seen: Order, attempt: Attempt, failed: Exception) -> None:
        """Comes back later, as often as it takes while the provider is away. An error counts against the payment only
        if the provider answers when asked about it right after; too many of those, and it has failed.
        """
        await self._write(lease, seen, attempt, status=attempt.status)
        if isinstance(failed, ProviderTimeout | Unreachable | RateLimited):
            raise failed
        if attempt.provider_key in {charge.key for _, charge in await self._find(lease, await self._latest(lease))}:
            return
        errors = attempt.errors + 1
        if errors > self._settings.payment_retries:
            await self._write(lease, seen, attempt, status="failed", reason="provider-error")
            return
        await self._write(lease, seen, attempt, errors=errors)
        raise failed

    async def sync_provider(self, lease: Lease, seen: Order) -> None:
        """Asks for every charge of this order. An attempt the provider has never heard of did not happen; what was
        authorised under an attempt that is over, or under none of ours, is called off.
        """
        found = await self._find(lease, seen)
        attempt = _attempt(seen)
        if attempt.status == "unknown" and attempt.provider_key not in {charge.key for _, charge in found}:
            await self._write(lease, seen, attempt, status="cancelled", reason=None)
        for name, charge in found:
            is_live = attempt.status in LIVE and charge.key == attempt.provider_key
            if charge.status == "authorised" and not is_live:
                await self._call_off(lease, seen, name, charge.charge_ref)

    async def _find(self, lease: Lease, seen: Order) -> list[tuple[str, ProviderCharge]]:
        """Records every charge that any provider has under this reference, and the live one by its own name."""
        found: list[tuple[str, ProviderCharge]] = []
        for name in seen.providers:
            found += [(name, charge) for charge in await self._providers[name].find(seen.reference)]
        attempt = _attempt(seen)
        if attempt.status in LIVE and attempt.provider_ref and attempt.provider_key not in {c.key for _, c in found}:
            found.append((attempt.provider, await self._fetch(attempt.provider, attempt.provider_ref)))
        for name in seen.providers:
            await self._record(lease, seen, name, [charge for of, charge in found if of == name])
        return found

    async def cancel_charge(self, lease: Lease, seen: Order) -> None:
        """Some charges can only be waited for: then we come back later."""
        attempt = _attempt(seen)
        assert attempt.provider_ref is not None
        charge = await self._call_off(lease, seen, attempt.provider, attempt.provider_ref)
        if charge.status in LIVE:
            raise OutcomeUnknown(f"still {charge.status}")

    async def _call_off(self, lease: Lease, seen: Order, name: str, charge_ref: str) -> ProviderCharge:
        try:
            charge = await self._providers[name].cancel(charge_ref)
        except AlreadySucceeded:
            charge = await self._fetch(name, charge_ref)
        await self._record(lease, seen, name, [charge])
        return charge

    async def _fetch(self, name: str, charge_ref: str) -> ProviderCharge:
        try:
            return await self._providers[name].fetch(charge_ref)
        except ProviderRejected as lost:
            raise OutcomeUnknown(f"the provider does not know {charge_ref} any more") from lost

    async def capture(self, lease: Lease, seen: Order) -> None:
        """Takes what was authorised. An error counts if the provider answers when asked about it right after; what it
        refuses outright it will refuse again.
        """
        attempt = _attempt(seen)
        assert attempt.provider_ref is not None
        try:
            charge = await self._providers[attempt.provider].capture(attempt.provider_ref)
        except ProviderRejected:
            await self._write(lease, seen, attempt, errors=CAPTURES_MAX)
            return
        except (NotSent, OutcomeUnknown) as failed:
            await self._not_captured(lease, seen, attempt, failed)
            return
        await self._failpoint("after the capture", seen.reference)
        await self._record(lease, seen, attempt.provider, [charge])

    async def _not_captured(self, lease: Lease, seen: Order, attempt: Attempt, failed: Exception) -> None:
        if isinstance(failed, ProviderTimeout | Unreachable | RateLimited):
            raise failed
        now = {charge.key: charge.status for _, charge in await self._find(lease, seen)}
        if now.get(attempt.provider_key) == "authorised":
            await self._write(lease, seen, attempt, errors=attempt.errors + 1)
            raise failed

    async def _record(self, lease: Lease, seen: Order, provider: str, charges: list[ProviderCharge]) -> None:
        await self._book.write(OrderUpdate(lease, seen).charges(provider, charges))

    async def abandon_attempt(self, lease: Lease, seen: Order) -> None:
        await self._write(lease, seen, _attempt(seen), status="cancelled", reason=None)

    async def _write(self, lease: Lease, seen: Order, attempt: Attempt, **sets: object) -> None:
        await self._book.write(OrderUpdate(lease, seen).attempt(attempt, **sets))

    async def _latest(self, lease: Lease) -> Order:
        latest = await self._book.read(lease.reference)
        if latest is None:
            raise LeaseLost(lease.reference)
        return latest


def _attempt(seen: Order) -> Attempt:
    assert seen.attempt is not None
    return seen.attempt


def _charge_order(seen: Order, attempt: Attempt) -> ChargeOrder:
    return ChargeOrder(
        reference=seen.reference,
        key=attempt.provider_key,
        amount_minor=attempt.amount_minor,
        currency=attempt.currency,
        method=attempt.method,
        token=attempt.token,
        return_url=attempt.return_url and attempt.return_url.replace(REFERENCE, seen.reference),
        capture=attempt.capture,
    )
