"""Payment steps on holds: begin, end, confirm, release, and reacquire for a payment that came late.

An order owns a hold by its reference: only the order whose reference is stored may end the payment, confirm or release.
Every step is decided in PostgreSQL under the reservations' locks and may be repeated. None needs Redis, which follows.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.event_cache import EventCache
from services.inventory.catalogue.layout import Layout
from services.inventory.metrics import DRIFT
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.expiry import SET_SEAT_STATUS, ReleaseReason, release_stock, sync_redis
from services.inventory.reservations.repository import (
    Lock,
    LockArguments,
    ReservationRow,
    lock_for_payment,
    lock_reservations,
    step_done,
)
from shared.contracts.inventory import CustomerLimit, PaymentStep, StepDone
from shared.postgres.engine import statement
from shared.postgres.errors import retry_deadlocks
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
MOVE_RESERVATIONS = statement(__package__, "move_reservations")
COUNT_CUSTOMERS = statement(__package__, "count_customers")
REACQUIRE_SECTIONS = statement(__package__, "reacquire_sections")
REACQUIRE_SEATS = statement(__package__, "reacquire_seats")

Used = dict[tuple[str | None, str], Counter[str]]  # by (event or tour, customer)


@dataclass(slots=True)
class _PaymentBatch:
    """One batch of steps under its locks: the new state of the records, and what else to write."""

    connection: AsyncConnection
    records: Mapping[str, ReservationRow]
    now_ms: int
    reason: ReleaseReason
    moved: dict[str, str | None] = field(default_factory=dict)
    reacquired: list[str] = field(default_factory=list)
    limits_exceeded: dict[str, CustomerLimit] = field(default_factory=dict)  # by order reference

    def move(
        self, record: ReservationRow, status: str, *, reference: str | None, customer_key: str | None = None
    ) -> None:
        record.status = status  # type: ignore[assignment]
        record.order_reference = reference
        self.moved[record.reservation_id] = customer_key or self.moved.get(record.reservation_id)

    def ids(self, *statuses: str) -> dict[str, list[str]]:
        """Ids of moved reservations that now have one of these statuses, by event; without the reacquired."""
        found: dict[str, list[str]] = {}
        for reservation_id in sorted(self.moved):
            record = self.records[reservation_id]
            if record.status in statuses and reservation_id not in self.reacquired:
                found.setdefault(record.event_id, []).append(reservation_id)
        return dict(sorted(found.items()))


Decide = Callable[[_PaymentBatch], Awaitable[list[str]]]


class Payments:
    """The five payment steps; each method takes a batch and answers one result per step, in order."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue

    async def begin(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """Stores the order's reference and extends the hold by the time to pay, once."""

        async def decide(batch: _PaymentBatch) -> list[str]:
            usage = await self._usage(batch, steps)
            return [self._begin(batch, step, usage) for step in steps]

        return await self._run(steps, decide, lock=lock_for_payment)

    async def end(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """Ends the payment; the hold goes on."""

        async def decide(batch: _PaymentBatch) -> list[str]:
            return [_end(batch, step) for step in steps]

        return await self._run(steps, decide)

    async def confirm(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """Marks held places as sold."""

        async def decide(batch: _PaymentBatch) -> list[str]:
            return [_confirm(batch, step) for step in steps]

        return await self._run(steps, decide)

    async def release(self, steps: Sequence[PaymentStep], *, reason: ReleaseReason = "order") -> list[StepDone]:
        """Releases the hold of an order that ended unpaid."""

        async def decide(batch: _PaymentBatch) -> list[str]:
            return [_release(batch, step) for step in steps]

        return await self._run(steps, decide, reason=reason)

    async def reacquire(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """Sells the same places for a payment that came late, if they are still held or all available."""

        async def decide(batch: _PaymentBatch) -> list[str]:
            return [await _reacquire(batch, step) for step in steps]

        return await self._run(steps, decide)

    async def _run(
        self,
        steps: Sequence[PaymentStep],
        decide: Decide,
        *,
        reason: ReleaseReason = "order",
        lock: Lock = lock_reservations,
    ) -> list[StepDone]:
        ids = [step.reservation_id for step in steps]
        arguments: LockArguments = {"ids": ids, "customer_keys": [step.customer_key for step in steps]}
        batch, outcomes = await retry_deadlocks(lambda: self._run_locked(lock, arguments, decide, reason))
        await self._sync_redis(batch)
        return [
            step_done(
                batch.records.get(step.reservation_id), outcome, over=batch.limits_exceeded.get(step.order_reference)
            )
            for step, outcome in zip(steps, outcomes, strict=True)
        ]

    async def _run_locked(
        self, lock: Lock, arguments: LockArguments, decide: Decide, reason: ReleaseReason
    ) -> tuple[_PaymentBatch, list[str]]:
        async with self._db.begin() as connection:
            now_ms, records = await lock(connection, arguments)
            now_ms = min(now_ms + self._redis_stock.clock_offset_ms, self._redis_stock.slowest_ms())
            batch = _PaymentBatch(connection, records, now_ms, reason)
            outcomes = await decide(batch)
            await _write(batch)
        return batch, outcomes

    async def _usage(self, batch: _PaymentBatch, steps: Sequence[PaymentStep]) -> tuple[Used, Used]:
        """Tickets and open orders of the (locked) customers at each event, and their tickets of each tour."""
        customers = {
            (batch.records[step.reservation_id].event_id, step.customer_key)
            for step in steps
            if step.customer_key and step.reservation_id in batch.records
        }
        by_event, by_tour = defaultdict[Any, Counter[str]](Counter), defaultdict[Any, Counter[str]](Counter)
        counted = set[tuple[str | None, str]]()
        if customers:
            values = {"event_ids": [c[0] for c in customers], "customer_keys": [c[1] for c in customers]}
            for row in await batch.connection.execute(COUNT_CUSTOMERS, values):
                if row.bought_at == row.event_id:
                    open_now = int(row.status == "paying")
                    by_event[row.event_id, row.customer_key].update(tickets=int(row.tickets), open=open_now)
                tour_id = self._catalogue.layout(row.event_id).tour_id
                if (tour_id, row.reservation_id) not in counted:  # the statement returns it once per event of the tour
                    by_tour[tour_id, row.customer_key].update(tickets=int(row.tickets))
                    counted.add((tour_id, row.reservation_id))
        return by_event, by_tour

    def _begin(self, batch: _PaymentBatch, step: PaymentStep, used: tuple[Used, Used]) -> str:
        record = batch.records.get(step.reservation_id)
        if record is None:
            return "unknown"
        if record.status in ("paying", "confirmed") and record.order_reference == step.order_reference:
            return "done"
        if record.status == "paying":
            return "payment-in-progress"
        if record.status != "pending_payment" or batch.now_ms > record.release_at_ms:
            return "ended"
        if step.released_tickets is not None and step.released_tickets != record.released_tickets:
            return "changed"
        layout = self._catalogue.layout(record.event_id)
        if step.customer_key:
            here = used[0][record.event_id, step.customer_key]
            on_tour = used[1][layout.tour_id, step.customer_key]
            if over := _limit_exceeded(layout, here, on_tour, record.quantity):
                batch.limits_exceeded[step.order_reference] = over
                return "limit-exceeded"
            here.update(tickets=record.quantity, open=1)
            on_tour.update(tickets=record.quantity)
        if not record.payment_extended:
            record.reserved_until_ms = max(record.reserved_until_ms, batch.now_ms + layout.pay_ttl_s * 1000)
            record.payment_extended = True
        batch.move(record, "paying", reference=step.order_reference, customer_key=step.customer_key)
        return "done"

    async def _sync_redis(self, batch: _PaymentBatch) -> None:
        """Updates Redis; if it is away, reconciliation corrects the difference later."""
        try:
            for event_id in {record.event_id for record in batch.records.values()}:
                moved = [batch.records[r] for r in batch.moved if batch.records[r].event_id == event_id]
                await sync_redis(
                    self._redis_stock, event_id, [r for r in moved if r.reservation_id not in batch.reacquired]
                )
                for record in moved:
                    if record.reservation_id in batch.reacquired:
                        await self._redis_stock.reacquire(
                            event_id, record.reservation_id, record.holder, record.selection_text()
                        )
        except REDIS_AWAY as away:
            DRIFT.labels("sync").inc()
            log.warning("redis_stock.sync_failed", extra=data(error=type(away).__name__))


def _limit_exceeded(
    layout: Layout, used: Mapping[str, int], on_tour: Mapping[str, int], quantity: int
) -> CustomerLimit | None:  # fmt: skip
    """The customer's limit that `quantity` more tickets would exceed, if any."""
    tickets_max, open_max = layout.tickets_per_customer, layout.open_orders_per_customer
    tour_max = layout.tour_tickets_per_customer
    if tickets_max and used["tickets"] + quantity > tickets_max:
        return CustomerLimit(limit="tickets_per_customer", allowed=tickets_max, used=used["tickets"])
    if open_max and used["open"] >= open_max:
        return CustomerLimit(limit="open_orders_per_customer", allowed=open_max, used=used["open"])
    if tour_max and on_tour["tickets"] + quantity > tour_max:
        return CustomerLimit(limit="tour_tickets_per_customer", allowed=tour_max, used=on_tour["tickets"])
    return None


def _end(batch: _PaymentBatch, step: PaymentStep) -> str:
    record = batch.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    if record.status == "paying" and record.order_reference == step.order_reference:
        batch.move(record, "pending_payment", reference=step.order_reference)
        return "done"
    if record.status == "pending_payment" and record.order_reference == step.order_reference:
        return "done"
    return "not-owner" if record.is_live else "ended"


def _confirm(batch: _PaymentBatch, step: PaymentStep) -> str:
    record = batch.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    is_owner = record.order_reference == step.order_reference
    if record.status == "paying" and is_owner:
        batch.move(record, "confirmed", reference=step.order_reference)
        return "done"
    if record.status == "confirmed" and is_owner:
        return "done"
    return "not-owner" if record.is_live or record.status == "confirmed" else "ended"


def _release(batch: _PaymentBatch, step: PaymentStep) -> str:
    record = batch.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    is_owner = record.order_reference == step.order_reference
    if record.is_live and is_owner:
        batch.move(
            record, "expired" if batch.now_ms > record.release_at_ms else "cancelled", reference=step.order_reference
        )
        return "done"
    if record.is_live:
        return "not-owner"
    return "done" if is_owner and record.status in ("expired", "cancelled") else "ended"


async def _reacquire(batch: _PaymentBatch, step: PaymentStep) -> str:
    record = batch.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    is_owner = record.order_reference == step.order_reference
    if record.status == "confirmed":
        return "done" if is_owner else "not-owner"
    if record.status == "paying" and not is_owner:
        return "payment-in-progress"
    if record.is_live:  # still held
        batch.move(record, "confirmed", reference=step.order_reference)
        return "done"
    if record.status not in ("expired", "cancelled") or record.quantity == 0:
        return "ended"
    savepoint = await batch.connection.begin_nested()
    if not await _reacquire_stock(batch.connection, record):
        await savepoint.rollback()
        return "taken"
    await savepoint.commit()
    batch.reacquired.append(record.reservation_id)
    batch.move(record, "confirmed", reference=step.order_reference)
    return "done"


async def _reacquire_stock(connection: AsyncConnection, record: ReservationRow) -> bool:
    """Takes all of its places again if they are available, else none."""
    wanted: Counter[str] = Counter(seat[0] for seat in record.seats)
    for section_id, quantity, _ in record.ga:
        wanted[section_id] += quantity
    sections = {"event_id": record.event_id, "section_ids": list(wanted), "quantities": list(wanted.values())}
    if (await connection.execute(REACQUIRE_SECTIONS, sections)).rowcount != len(wanted):
        return False
    values = {"event_id": record.event_id, "reservation_id": record.reservation_id}
    return bool((await connection.execute(REACQUIRE_SEATS, values)).rowcount == len(record.seats))


async def _write(batch: _PaymentBatch) -> None:
    """Writes the moved reservations, then their places, then the events."""
    if not batch.moved:
        return
    moved = [batch.records[reservation_id] for reservation_id in sorted(batch.moved)]
    await batch.connection.execute(
        MOVE_RESERVATIONS,
        {
            "event_ids": [r.event_id for r in moved], "ids": [r.reservation_id for r in moved],
            "statuses": [r.status for r in moved], "references": [r.order_reference for r in moved],
            "customer_keys": [batch.moved[r.reservation_id] for r in moved],
            "untils": [str(r.reserved_until_ms) for r in moved],
        },
    )  # fmt: skip
    for event_id, ids in batch.ids("expired", "cancelled").items():
        await release_stock(batch.connection, event_id, ids, reason=batch.reason, now_ms=batch.now_ms, actor="orders")
    for event_id, ids in batch.ids("confirmed").items():
        await batch.connection.execute(SET_SEAT_STATUS, {"event_id": event_id, "ids": ids, "status": "sold"})
    sold = [record for record in moved if record.status == "confirmed"]
    for event_id in sorted({record.event_id for record in sold}):
        events = [_sold_event(record) for record in sold if record.event_id == event_id]
        await emit(batch.connection, event_id, events, actor="orders")


def _sold_event(record: ReservationRow) -> ReservationEvent:
    after = {"status": "confirmed", "order_reference": record.order_reference, "total_minor": record.total_minor}
    return ReservationEvent("confirmed", record.reservation_id, record.version + 1, {**after, **record.places()})
