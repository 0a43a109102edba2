"""Writes new orders.

Concurrent orders share a transaction; if one of them is rejected, each half is written by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import orjson

from services.orders.checkout.requests import NewOrder
from services.orders.metrics import JOB_ENGINE_UP
from services.orders.order.updates import Lease
from services.orders.order.view import adjustment_view, line_view
from services.orders.pricing.calculator import Quote
from services.orders.pricing.promo_codes import Redemption, RejectionReason, over_limit
from services.orders.processing.job_queue import EnqueueFailed, JobQueue
from services.orders.processing.worker_pool import InlineProcessor
from shared.concurrency.group_commit import GroupCommit, by_halves
from shared.contracts.events import Event
from shared.contracts.fields import code_key, tidy
from shared.contracts.inventory import Reservation
from shared.errors.database import retry_deadlocks
from shared.messaging.outbox import wake_relay
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError, statement
from shared.runtime import tracing

_INSERT_ORDERS = statement(__package__, "insert_orders")
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the next
InsertResult = Literal["created", "no_job", "duplicate", "tombstoned"] | RejectionReason


class Outcome(NamedTuple):
    """What became of a draft. `created`; `no_job`: created, but no job could be enqueued; `duplicate`: its idempotency
    key exists; `tombstoned`: its reference can never be used; or why its promo code was refused. With a lease the
    request processes the order.
    """

    result: InsertResult
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """An order to be written. With a lease no worker takes it until the lease expires."""

    reference: str
    owner_id: str
    scope: str
    key_hash: bytes
    fingerprint: bytes
    reservation: Reservation
    quote: Quote
    customer_key: str
    request: NewOrder
    language: str
    lease: Lease | None = None
    traceparent: str | None = field(default_factory=tracing.traceparent)

    @property
    def redemption(self) -> Redemption | None:
        """The redemption of its promo code, if it has one."""
        code = self.request.promo_code
        if code is None:
            return None
        return Redemption(self.reservation.event_id, code_key(code), self.customer_key)


class _BatchRejected(Exception):
    """An order of the batch was rejected; its transaction is rolled back."""

    def __init__(self, result: InsertResult) -> None:
        super().__init__(result)
        self.result: InsertResult = result


class OrderWriter:
    """Writes orders, and enqueues a job for those that no request processes itself."""

    def __init__(
        self, db: AsyncEngine, job_queue: JobQueue, inline_processor: InlineProcessor, *, capture: bool
    ) -> None:
        self._db, self._job_queue, self._inline_processor, self._capture = db, job_queue, inline_processor, capture
        self._group: GroupCommit[OrderDraft, Outcome] = GroupCommit(
            self._insert_batch, name="orders-insert", batch_max=BATCH_MAX, waiting_max=WAITING_MAX,
            in_flight_max=IN_FLIGHT_MAX,
        )  # fmt: skip
        self.close = self._group.close

    async def insert(self, draft: OrderDraft, *, in_request: bool) -> Outcome:
        """Writes an order. With `in_request` it is leased to the request, if an inline slot is free."""
        slot = self._inline_processor.acquire(draft.reference) if in_request else None
        outcome = None
        try:
            outcome = await self._group.submit(replace(draft, lease=slot) if slot else draft)
        finally:
            if slot and (outcome is None or outcome.lease is None):
                self._inline_processor.release(slot)
        return outcome

    async def _insert_batch(self, batch: Sequence[OrderDraft]) -> Sequence[Outcome | BaseException]:
        try:
            return await self._write_with_job(batch)
        except DB_AWAY:
            raise
        except (_BatchRejected, DBAPIError) as failed:
            if len(batch) > 1:
                return await by_halves(self._insert_batch, batch)
            return [Outcome(failed.result) if isinstance(failed, _BatchRejected) else failed]

    async def _write_with_job(self, batch: Sequence[OrderDraft]) -> list[Outcome]:
        try:
            await retry_deadlocks(lambda: self._write(batch, self._job_queue))
        except EnqueueFailed:
            JOB_ENGINE_UP.set(0)
            return await self._write_without_job(batch)
        JOB_ENGINE_UP.set(1)
        return [Outcome("created", draft.lease) for draft in batch]

    async def _write_without_job(self, batch: Sequence[OrderDraft]) -> list[Outcome]:
        """The job queue is unavailable: requests process the orders that find a slot, the next sweep finds the rest."""
        leases = [draft.lease or self._inline_processor.acquire(draft.reference) for draft in batch]
        try:
            await self._write([replace(draft, lease=lease) for draft, lease in zip(batch, leases, strict=True)], None)
        except BaseException:
            for draft, lease in zip(batch, leases, strict=True):
                self._inline_processor.release(None if draft.lease else lease)
            raise
        return [Outcome("no_job", lease) for lease in leases]

    async def _write(self, batch: Sequence[OrderDraft], job_queue: JobQueue | None) -> None:
        """Writes all or none. One job is enough for all: it only wakes the workers, the rows say what is due."""
        if len({draft.reference for draft in batch}) < len(batch):
            raise _BatchRejected("duplicate")
        redemptions = [draft.redemption for draft in batch if draft.redemption]
        async with self._db.begin() as connection:
            if redemptions and (refused := await over_limit(connection, redemptions)):
                raise _BatchRejected(refused)
            rows = [_row(draft) | {"capture": self._capture} for draft in batch]
            inserted = (await connection.execute(_INSERT_ORDERS, {"orders": orjson.dumps(rows).decode()})).all()
            if not all(row.keyed for row in inserted):
                raise _BatchRejected("duplicate")
            if not all(row.created for row in inserted):
                raise _BatchRejected("tombstoned")
            if job_queue is not None and any(draft.lease is None for draft in batch):
                await job_queue.enqueue(connection, batch[0].reference)
        wake_relay("orders")


def _row(draft: OrderDraft) -> dict[str, Any]:
    held, request = draft.reservation, draft.request
    payment, customer, redemption, lease = request.payment, request.customer, draft.redemption, draft.lease
    return {
        "scope": draft.scope, "key_hash": draft.key_hash.hex(), "fingerprint": draft.fingerprint.hex(),
        "reference": draft.reference, "event_id": held.event_id, "reservation_id": held.reservation_id,
        "owner_id": draft.owner_id, "lane": held.lane, "join_seq": held.join_seq,
        "total_minor": draft.quote.total_minor, "currency": held.currency, "customer_name": tidy(customer.name),
        "customer_email": customer.email, "customer_phone": customer.phone, "language": draft.language,
        "expires_at_ms": held.reserved_until_ms,
        "grace_s": held.grace_s, "lines": list(map(line_view, draft.quote.lines)),
        "extras": list(map(adjustment_view, draft.quote.extras)), "promo_code": redemption and redemption.code,
        "customer_key": draft.customer_key, "provider": payment.provider, "method": payment.method,
        "token": payment.token, "return_url": payment.return_url,
        "event": _created_event(draft).model_dump(mode="json"), "lease": lease and lease.owner,
        "lease_s": lease and lease.seconds, "traceparent": draft.traceparent,
    }  # fmt: skip


def _created_event(draft: OrderDraft) -> Event:
    held = draft.reservation
    return Event(
        type="order.created",
        event_id=held.event_id,
        actor=held.holder,
        aggregate=f"order:{draft.reference}",
        after={
            "reference": draft.reference, "event_id": held.event_id, "status": "pending", "holder": held.holder,
            "lane": held.lane, "join_seq": held.join_seq, "reservation_id": held.reservation_id,
            "total_minor": draft.quote.total_minor, "currency": held.currency,
        },
    )  # fmt: skip
