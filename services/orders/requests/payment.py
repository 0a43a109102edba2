"""What the buyer of an unpaid order may ask for: another attempt to pay, more time, or its end."""

from services.orders.checkout.checkout import check_payment
from services.orders.checkout.requests import NewPayment, fingerprint_of, key_in_flight
from services.orders.model.order import LIVE_STATUSES, Attempt, Order
from services.orders.model.references import provider_key
from services.orders.model.update import OrderUpdate
from services.orders.pricing.calculator import require_payable
from services.orders.problems import OrderNotPending
from services.orders.providers.provider import Provider
from services.orders.steps.run import InventoryBatcher, payment_step
from services.orders.store.store import OrderStore
from shared.errors.problems import (
    AlreadyExtended,
    HoldExpired,
    IdempotencyKeyReused,
    LimitExceeded,
    PaymentInProgress,
)
from shared.postgres.engine import AsyncConnection
from shared.web.request import key_hash

ENDED_UNPAID = ("cancelled", "expired")
ATTEMPTS_MAX = 20  # of one order


async def retry_payment(
    store: OrderStore, order: Order, request: NewPayment, *, key: str, providers: dict[str, Provider], capture: bool
) -> bool:
    """Adds an attempt, unless one is live; this process works on the order from then on. False if this key was used
    before: nothing is written then.
    """
    fingerprint = fingerprint_of(request).hex()
    check_payment(providers, request.payment)
    provider = providers[request.payment.provider]
    require_payable(order.total_minor, order.currency, providers, by=provider)
    hashed, payment = key_hash(key).hex(), request.payment

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate | None:
        known = next((attempt for attempt in order.attempts if attempt.key_hash == hashed), None)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise IdempotencyKeyReused
            return None
        _require_another_attempt(order)
        n = len(order.attempts) + 1
        attempt = Attempt(
            n=n, provider=payment.provider, method=payment.method, token=payment.token, return_url=payment.return_url,
            amount_minor=order.total_minor, currency=order.currency, provider_key=provider_key(order.reference, n),
            status="created", capture=capture, created_at_ms=order.now_ms, changed_at_ms=order.now_ms,
            key_hash=hashed, fingerprint=fingerprint,
        )  # fmt: skip
        return (
            OrderUpdate(order).add_attempt(attempt).begin_command("checkout", caused_by="fan", payload={"attempt": n})
        )

    with key_in_flight():
        return await store.change(order.reference, decide, take=True)


def _require_another_attempt(order: Order) -> None:
    last = order.attempt
    if order.status != "pending" or order.cancel_requested or last is None or last.reason == "provider-error":
        raise OrderNotPending
    if order.is_late:
        raise HoldExpired
    if last.status in (*LIVE_STATUSES, "succeeded"):
        raise PaymentInProgress("A payment of this order is in progress.")
    if len(order.attempts) >= ATTEMPTS_MAX:
        raise LimitExceeded(f"This order was tried to be paid {ATTEMPTS_MAX} times. Cancel it and order again.")


async def extend_payment(store: OrderStore, inventory: InventoryBatcher, order: Order) -> None:
    """Gives the buyer of a pending order the time to pay again, once, from now on: inventory keeps the places longer,
    and then the order ends later. Raises `OrderNotPending`, `AlreadyExtended`, `HoldExpired`.

    A crash in between leaves the places held for longer than the order lasts, which then releases them.
    """
    if order.status != "pending" or order.cancel_requested:
        raise OrderNotPending
    if order.extended:
        raise AlreadyExtended
    done = await inventory.extend_payment(payment_step(order))
    until_ms = done.reserved_until_ms
    if done.outcome != "done" or until_ms is None:
        raise HoldExpired

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate:
        if order.status != "pending" or order.extended:
            raise AlreadyExtended
        return OrderUpdate(order).set_order(expires_at_ms=until_ms, extended=True)

    await store.change(order.reference, decide)


async def request_cancel(store: OrderStore, order: Order, *, reason: str = "fan") -> None:
    """Requests the cancellation. The order's process does it, and first checks with the provider if a charge was sent.
    Raises `OrderNotPending`.
    """
    if order.status in ENDED_UNPAID or order.cancel_requested:
        return

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate:
        return cancellation(order, reason)

    await store.change(order.reference, decide)


def cancellation(order: Order, reason: str) -> OrderUpdate:
    """The request to cancel. Raises `OrderNotPending`."""
    if order.status != "pending":
        raise OrderNotPending
    update = OrderUpdate(order).set_order(cancel_requested=True, end_reason=reason)
    return update.begin_command("cancel", caused_by=reason, payload={"reason": reason})
