"""What a fan may still do to an order that is not paid: try another way to pay, or give it up."""

import hashlib
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.api.schemas import NewPayment
from services.orders.checkout.checkout import check_payment, waited_for_a_lock
from services.orders.checkout.idempotency import used_before
from services.orders.order import leases
from services.orders.order.card_numbers import refuse_card_numbers
from services.orders.order.next_step import Order
from services.orders.order.states import LIVE
from services.orders.payments.provider import Provider
from services.orders.problems import OrderNotPending
from services.orders.processing.job_queue import EnqueueFailed, JobQueue
from services.orders.tables import checkout_command, order, payment_attempt
from shared.postgres.engine import AsyncConnection, AsyncEngine, DBAPIError
from shared.web.problems import HoldExpired, IdempotencyInFlight, PaymentInProgress

GIVEN_UP = ("cancelled", "expired")


class PaymentAnswer(NamedTuple):
    """What came of it: this key did so before, or a worker has been asked for."""

    replayed: bool
    heard: bool = True


async def retry_payment(
    db: AsyncEngine,
    jobs: JobQueue | None,
    providers: dict[str, Provider],
    seen: Order,
    key: str,
    asked: NewPayment,
    *,
    capture: bool,
) -> PaymentAnswer:
    """Adds an attempt, unless one is live. Without `jobs` no worker is asked for."""
    told = asked.model_dump_json()
    refuse_card_numbers(asked, told)
    check_payment(providers, asked.payment)
    fingerprint = hashlib.sha256(told.encode()).digest()
    for with_job in (jobs, None):
        try:
            async with db.begin() as connection:
                scope = f"POST /orders/{seen.reference}/payments"
                if await used_before(connection, scope, key, fingerprint, seen.reference):
                    return PaymentAnswer(replayed=True)
                await _add_attempt(connection, seen, asked, capture=capture)
                if with_job is not None:
                    await with_job.enqueue(connection, seen.reference)
            return PaymentAnswer(replayed=False, heard=with_job is not None)
        except EnqueueFailed:
            continue
        except DBAPIError as failed:
            if waited_for_a_lock(failed):
                raise IdempotencyInFlight from failed
            raise
    raise AssertionError("unreachable")


async def _add_attempt(connection: AsyncConnection, seen: Order, asked: NewPayment, *, capture: bool) -> None:
    """The order's row is locked, so neither the cashier nor another request is in between."""
    reference = seen.reference
    locked = await leases.mark_due(connection, reference)
    attempts = select(payment_attempt.c.n, payment_attempt.c.status, payment_attempt.c.reason)
    attempts = attempts.where(payment_attempt.c.reference == reference).order_by(payment_attempt.c.n.desc())
    last = (await connection.execute(attempts.limit(1))).first()
    if locked.status != "pending" or locked.cancel_asked or last is None or last.reason == "provider-error":
        raise OrderNotPending
    if seen.late:
        raise HoldExpired
    if last.status in (*LIVE, "succeeded"):
        raise PaymentInProgress("A payment of this order is in progress.")
    payment, n = asked.payment, last.n + 1
    await connection.execute(
        insert(payment_attempt).values(
            reference=reference, n=n, provider=payment.provider, method=payment.method, token=payment.token,
            return_url=payment.return_url, amount_minor=locked.total_minor, currency=locked.currency,
            provider_key=f"{reference}:{n}", status="created", capture=capture,
        )
    )  # fmt: skip
    command = {"command_type": "checkout", "caused_by": "fan", "status": "processing", "payload": {"attempt": n}}
    await connection.execute(insert(checkout_command).values(reference=reference, **command))


async def request_cancel(db: AsyncEngine, jobs: JobQueue, seen: Order, *, reason: str = "fan") -> None:
    """Asks for an order to be cancelled; the cashier does it, and asks the provider first if it was asked to charge."""
    if seen.status in GIVEN_UP or seen.cancel_asked:
        return
    for with_job in (jobs, None):
        try:
            async with db.begin() as connection:
                await request_cancel_in(connection, seen.reference, reason)
                if with_job is not None:
                    await with_job.enqueue(connection, seen.reference)
            return
        except EnqueueFailed:
            continue


async def request_cancel_in(connection: AsyncConnection, reference: str, reason: str) -> None:
    """In the caller's transaction. Raises `OrderNotPending` if it is not pending."""
    asked = await connection.execute(
        update(order)
        .where(order.c.reference == reference, order.c.status == "pending")
        .values(wake_count=order.c.wake_count + 1, due_at=leases.NOW, end_reason=reason, cancel_asked_at=leases.NOW)
    )
    if not asked.rowcount:
        raise OrderNotPending
    await connection.execute(
        insert(checkout_command).values(
            reference=reference,
            command_type="cancel",
            caused_by=reason,
            payload={"reason": reason},
            status="processing",
        )
    )
