"""What the buyer of an unpaid order may ask for: another attempt to pay, more time, or its end."""

from typing import Literal

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.checkout.checkout import check_payment
from services.orders.checkout.idempotency import fingerprint_of, key_in_flight, used_before
from services.orders.checkout.inventory_client import InventoryBatcher, payment_step
from services.orders.checkout.requests import NewPayment
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.states import LIVE_STATUSES
from services.orders.payments.provider import Provider
from services.orders.pricing.chargeable import require_payable_by
from services.orders.problems import OrderNotPending
from services.orders.processing.job_queue import Committed, JobQueue
from services.orders.tables import checkout_command, payment_attempt
from services.orders.tables import order as order_table
from shared.errors.problems import AlreadyExtended, HoldExpired, PaymentInProgress
from shared.postgres.engine import AsyncConnection, AsyncEngine

ENDED_UNPAID = ("cancelled", "expired")


async def retry_payment(
    db: AsyncEngine, job_queue: JobQueue, order: Order, request: NewPayment, *, key: str,
    providers: dict[str, Provider], capture: bool, in_background: bool,
) -> Committed:  # fmt: skip
    """Adds an attempt, unless one is live; with a job if workers are to process it (`in_background`). Nothing is
    written if this key was used before.
    """
    fingerprint = fingerprint_of(request)
    check_payment(providers, request.payment)
    require_payable_by(providers[request.payment.provider], order.total_minor, order.currency)
    scope = f"POST /orders/{order.reference}/payments"

    async def write(connection: AsyncConnection) -> bool:
        if await used_before(connection, scope, key, fingerprint, order.reference):
            return False
        await _add_attempt(connection, order, request, capture=capture)
        return True

    with key_in_flight():
        return await job_queue.commit_with_job(db, order.reference, write, enqueue=in_background)


async def _add_attempt(connection: AsyncConnection, order: Order, request: NewPayment, *, capture: bool) -> None:
    """The order's row is locked, so that no worker and no other request writes in between."""
    reference = order.reference
    locked = await leases.mark_due(connection, reference)
    attempts = select(payment_attempt.c.n, payment_attempt.c.status, payment_attempt.c.reason)
    attempts = attempts.where(payment_attempt.c.reference == reference).order_by(payment_attempt.c.n.desc())
    last = (await connection.execute(attempts.limit(1))).first()
    if locked.status != "pending" or locked.cancel_requested or last is None or last.reason == "provider-error":
        raise OrderNotPending
    if order.is_late:
        raise HoldExpired
    if last.status in (*LIVE_STATUSES, "succeeded"):
        raise PaymentInProgress("A payment of this order is in progress.")
    payment, n = request.payment, last.n + 1
    await connection.execute(
        insert(payment_attempt).values(
            reference=reference, n=n, provider=payment.provider, method=payment.method, token=payment.token,
            return_url=payment.return_url, amount_minor=locked.total_minor, currency=locked.currency,
            provider_key=f"{reference}:{n}", status="created", capture=capture,
        )
    )  # fmt: skip
    command = {"command_type": "checkout", "caused_by": "fan", "status": "processing", "payload": {"attempt": n}}
    await connection.execute(insert(checkout_command).values(reference=reference, **command))


async def extend_payment(db: AsyncEngine, inventory: InventoryBatcher, order: Order) -> None:
    """Gives the buyer of a pending order the time to pay again, once, from now on: inventory keeps the places longer,
    and then the order ends later. Raises `OrderNotPending`, `AlreadyExtended`, `HoldExpired`.

    A crash in between leaves the places held for longer than the order lasts, which then releases them.
    """
    if order.status != "pending" or order.cancel_requested:
        raise OrderNotPending
    if order.extended:
        raise AlreadyExtended
    done = await inventory.extend_payment(payment_step(order))
    if done.outcome != "done" or done.reserved_until_ms is None:
        raise HoldExpired
    mine = order_table.c.reference == order.reference, order_table.c.status == "pending"
    until, version = func.to_timestamp(done.reserved_until_ms / 1000.0), order_table.c.version + 1
    longer = update(order_table).where(*mine, order_table.c.extended_at.is_(None))
    longer = longer.values(
        **leases.WAKE, expires_at=until, extended_at=leases.NOW, changed_at=leases.NOW, version=version
    )  # fmt: skip
    async with db.begin() as connection:
        if not (await connection.execute(longer)).rowcount:
            raise AlreadyExtended


async def request_cancel(db: AsyncEngine, job_queue: JobQueue, order: Order, *, reason: str = "fan") -> None:
    """Requests the cancellation. A worker does it, and first checks with the provider if a charge was sent."""
    if order.status in ENDED_UNPAID or order.cancel_requested:
        return
    await job_queue.commit_with_job(
        db, order.reference, lambda connection: request_cancel_in(connection, order.reference, reason)
    )


async def request_cancel_in(connection: AsyncConnection, reference: str, reason: str) -> Literal[True]:
    """As `request_cancel`, in the caller's transaction. Raises `OrderNotPending`."""
    pending = (order_table.c.reference == reference) & (order_table.c.status == "pending")
    cancel = update(order_table).where(pending).values(**leases.WAKE, end_reason=reason, cancel_requested_at=leases.NOW)
    if not (await connection.execute(cancel)).rowcount:
        raise OrderNotPending
    command = {"command_type": "cancel", "caused_by": reason, "payload": {"reason": reason}, "status": "processing"}
    await connection.execute(insert(checkout_command).values(reference=reference, **command))
    return True
