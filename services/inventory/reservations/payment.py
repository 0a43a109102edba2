"""Payment steps on holds: begin, end, confirm, release, and reacquire for a payment that came late.

An order owns a hold by its reference: only the order whose reference is stored may end the payment, confirm or release.
Every step is decided in PostgreSQL under the reservations' locks and may be repeated. None needs Redis, which follows.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.event_cache import EventCache
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.expiry import ReleaseReason, release_stock, sync_redis
from services.inventory.reservations.repository import (
    ReservationRow,
    keys_of,
    lock_for_payment,
    lock_reservations,
    step_done,
)
from shared.contracts.frames import ReservationState
from shared.contracts.inventory import CustomerLimit, PaymentStep, StepDone, StepOutcome
from shared.errors.database import retry_deadlocks
from shared.postgres.engine import statement
from shared.security.token_buckets import Buckets

SELL_SEATS = statement(__package__, "sell_seats")
MOVE_RESERVATIONS = statement(__package__, "move_reservations")
COUNT_CUSTOMERS = statement(__package__, "count_customers")
REACQUIRE_SECTIONS = statement(__package__, "reacquire_sections")
REACQUIRE_SEATS = statement(__package__, "reacquire_seats")

States = frozenset[ReservationState]
UNPAID: States = frozenset({"pending_payment"})
PAYING: States = frozenset({"paying"})
SOLD: States = frozenset({"confirmed"})
ENDED: States = frozenset({"expired", "cancelled"})
RETURNED: States = frozenset({"returned"})
LIVE = UNPAID | PAYING


class Transition(NamedTuple):
    """One step of an order on a hold: the status it leads `to`, in which statuses the owner has `done` it before, from
    which the owner and any order may take it, and the answer in those that refuse it (else `ended`).
    """

    to: ReservationState
    done: States
    refused: Mapping[ReservationState, StepOutcome]
    by_owner: States = frozenset()
    by_any: States = frozenset()

    def answer(self, record: ReservationRow | None, step: PaymentStep) -> StepOutcome | None:
        """The answer by status and owner alone; None if they allow the step."""
        if record is None:
            return "unknown"
        is_owner = record.order_reference == step.order_reference
        if is_owner and record.status in self.done:
            return "done"
        if record.status in self.by_any or (is_owner and record.status in self.by_owner):
            return None
        return self.refused.get(record.status, "ended")


def _not_owner(states: States) -> dict[ReservationState, StepOutcome]:
    return dict.fromkeys(states, "not-owner")


# Stores the order's reference and extends the hold by the time to pay, once.
BEGIN = Transition("paying", PAYING | SOLD, {"paying": "payment-in-progress"}, by_any=UNPAID)
# Gives a payment that is under way the time to pay again, from now on. The order counts how often.
EXTEND = Transition("paying", frozenset(), _not_owner(LIVE), by_owner=PAYING)
# The hold goes on.
END = Transition("pending_payment", UNPAID, _not_owner(LIVE), by_owner=PAYING)
CONFIRM = Transition("confirmed", SOLD, _not_owner(LIVE | SOLD), by_owner=PAYING)
# The hold of an order that ended unpaid.
RELEASE = Transition("cancelled", ENDED, _not_owner(LIVE), by_owner=LIVE)
# For a payment that came late: the same places, if they are still held or all available.
LATE: dict[ReservationState, StepOutcome] = {"paying": "payment-in-progress", "confirmed": "not-owner"}
REACQUIRE = Transition("confirmed", SOLD, LATE, by_owner=PAYING, by_any=UNPAID | ENDED)
RETURN = Transition("returned", RETURNED, _not_owner(LIVE | SOLD | RETURNED), by_owner=SOLD)


@dataclass(slots=True)
class _PaymentBatch:
    """One batch of one step under its locks: which reservations it moved, and which of them it reacquired."""

    connection: AsyncConnection
    records: Mapping[str, ReservationRow]
    now_ms: int
    used: defaultdict[tuple[str, str], Counter[str]]  # by (event or tour, customer)
    moved: dict[str, ReservationRow] = field(default_factory=dict)
    customer_keys: dict[str, str | None] = field(default_factory=dict)
    reacquired: set[str] = field(default_factory=set)
    limits_exceeded: dict[str, CustomerLimit] = field(default_factory=dict)  # by order reference

    def moved_by_event(self) -> dict[str, list[ReservationRow]]:
        """In the order of their keys."""
        by_event = defaultdict[str, list[ReservationRow]](list)
        for _, record in sorted(self.moved.items()):
            by_event[record.event_id].append(record)
        return dict(sorted(by_event.items()))


class Payments:
    """The payment steps of orders."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, given_back: Buckets) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._given_back = given_back

    async def take(
        self, transition: Transition, steps: Sequence[PaymentStep], *, reason: ReleaseReason = "order"
    ) -> list[StepDone]:
        """Takes a batch of one kind of step; one result per step, in order."""
        lock = lock_for_payment if transition is BEGIN else lock_reservations

        async def run_locked() -> tuple[_PaymentBatch, list[StepOutcome]]:
            async with self._db.begin() as connection:
                keys = await keys_of(connection, ((step.event_id, step.reservation_id) for step in steps))
                now_ms, records = await lock(connection, keys, [step.customer_key for step in steps])
                now_ms = min(now_ms + self._redis_stock.clock_offset_ms, self._redis_stock.slowest_ms())
                batch = _PaymentBatch(connection, records, now_ms, defaultdict(Counter))
                if transition is BEGIN:
                    await self._count_customers(batch, steps)
                outcomes = [await self._take_one(transition, batch, step) for step in steps]
                await _write(batch, reason)
            return batch, outcomes

        batch, outcomes = await retry_deadlocks(run_locked)
        if reason == "order":
            self._count_given_back(batch)
        with self._redis_stock.follows(record.event_id for record in batch.moved.values()):
            await self._sync_redis(batch)
        return [
            step_done(
                batch.records.get(step.reservation_id), outcome, over=batch.limits_exceeded.get(step.order_reference)
            )
            for step, outcome in zip(steps, outcomes, strict=True)
        ]

    def _count_given_back(self, batch: _PaymentBatch) -> None:
        """A hold that its order let go was given back like one that its fan released."""
        for record in batch.moved.values():
            if record.status == "cancelled":
                self._given_back.charge((record.event_id, record.holder), now_s=time.monotonic())

    async def _take_one(self, transition: Transition, batch: _PaymentBatch, step: PaymentStep) -> StepOutcome:
        """Takes one step, if the reservation's status, its owner and the step's own conditions allow it."""
        record, status = batch.records.get(step.reservation_id), transition.to
        if (answer := transition.answer(record, step)) or record is None:
            return answer or "unknown"
        if transition in (BEGIN, EXTEND) and batch.now_ms > record.release_at_ms:
            return "ended"
        if transition is BEGIN and (refusal := self._begin(batch, record, step)):
            return refusal
        if transition is EXTEND:
            self._extend(batch, record)
        if status == "confirmed" and record.status in ENDED and (refusal := await _reacquire(batch, record)):
            return refusal
        if status == "cancelled" and batch.now_ms > record.release_at_ms:
            status = "expired"
        record.status, record.order_reference = status, step.order_reference
        batch.moved[record.reservation_id] = record
        return "done"

    def _begin(self, batch: _PaymentBatch, record: ReservationRow, step: PaymentStep) -> StepOutcome | None:
        """Extends the hold, within the customer's limits; or why it cannot."""
        if step.released_tickets is not None and step.released_tickets != record.released_tickets:
            return "changed"
        layout = self._catalogue.layout(record.event_id)
        if step.customer_key:
            here = batch.used[record.event_id, step.customer_key]
            on_tour = batch.used[f"tour:{layout.tour_id}", step.customer_key]
            for limit, allowed, used, more in (
                ("tickets_per_customer", layout.tickets_per_customer, here["tickets"], record.quantity),
                ("open_orders_per_customer", layout.open_orders_per_customer, here["open"], 1),
                ("tour_tickets_per_customer", layout.tour_tickets_per_customer, on_tour["tickets"], record.quantity),
            ):
                if allowed and used + more > allowed:
                    over = CustomerLimit.model_validate({"limit": limit, "allowed": allowed, "used": used})
                    batch.limits_exceeded[step.order_reference] = over
                    return "limit-exceeded"
            here.update(tickets=record.quantity, open=1)
            on_tour.update(tickets=record.quantity)
        if not record.payment_extended:
            self._extend(batch, record)
            record.payment_extended = True
        batch.customer_keys[record.reservation_id] = step.customer_key
        return None

    def _extend(self, batch: _PaymentBatch, record: ReservationRow) -> None:
        """Extends the hold by the time to pay, from now on."""
        pay_ttl_ms = self._catalogue.layout(record.event_id).pay_ttl_s * 1000
        record.reserved_until_ms = max(record.reserved_until_ms, batch.now_ms + pay_ttl_ms)

    async def _count_customers(self, batch: _PaymentBatch, steps: Sequence[PaymentStep]) -> None:
        """Tickets and open orders of the (locked) customers at each event, and their tickets of each tour."""
        customers = {
            (batch.records[step.reservation_id].event_id, step.customer_key)
            for step in steps
            if step.customer_key and step.reservation_id in batch.records
        }
        if not customers:
            return
        counted = set[tuple[str | None, str]]()
        event_ids, customer_keys = map(list, zip(*customers, strict=True))
        values = {"event_ids": event_ids, "customer_keys": customer_keys}
        for row in await batch.connection.execute(COUNT_CUSTOMERS, values):
            if row.bought_at == row.event_id:
                open_now = int(row.status == "paying")
                batch.used[row.event_id, row.customer_key].update(tickets=int(row.tickets), open=open_now)
            tour_id = self._catalogue.layout(row.event_id).tour_id
            if (tour_id, row.reservation_id) not in counted:  # the statement returns it once per event of the tour
                batch.used[f"tour:{tour_id}", row.customer_key].update(tickets=int(row.tickets))
                counted.add((tour_id, row.reservation_id))

    async def _sync_redis(self, batch: _PaymentBatch) -> None:
        for event_id, moved in batch.moved_by_event().items():
            await sync_redis(
                self._redis_stock, event_id, [r for r in moved if r.reservation_id not in batch.reacquired]
            )
            for record in moved:
                if record.reservation_id in batch.reacquired:
                    await self._redis_stock.reacquire(
                        event_id, record.reservation_id, record.holder, record.selection.text()
                    )


async def _reacquire(batch: _PaymentBatch, record: ReservationRow) -> StepOutcome | None:
    """Takes all of its places again, if they are available; or why it cannot, and then it takes none."""
    if not record.quantity:
        return "ended"
    event_id, wanted = record.event_id, record.selection.stock.counts()
    sections = {"event_id": event_id, "section_ids": list(wanted), "quantities": list(wanted.values())}
    seats = {"event_id": event_id, "reservation_id": record.reservation_id}
    savepoint = await batch.connection.begin_nested()
    if (
        (await batch.connection.execute(REACQUIRE_SECTIONS, sections)).rowcount != len(wanted)
        or (await batch.connection.execute(REACQUIRE_SEATS, seats)).rowcount != len(record.selection.seats)
    ):  # fmt: skip
        await savepoint.rollback()
        return "taken"
    await savepoint.commit()
    batch.reacquired.add(record.reservation_id)
    return None


async def _write(batch: _PaymentBatch, reason: ReleaseReason) -> None:
    """Writes the moved reservations, then their places, then the events."""
    if not batch.moved:
        return
    moved = [record for _, record in sorted(batch.moved.items())]
    columns = {
        "event_ids": [r.event_id for r in moved], "ids": [r.reservation_id for r in moved],
        "statuses": [r.status for r in moved], "references": [r.order_reference for r in moved],
        "customer_keys": [batch.customer_keys.get(r.reservation_id) for r in moved],
        "untils": [str(r.reserved_until_ms) for r in moved],
    }  # fmt: skip
    await batch.connection.execute(MOVE_RESERVATIONS, columns)
    for event_id, records in batch.moved_by_event().items():
        ended = [r.reservation_id for r in records if r.status in ENDED]
        await release_stock(batch.connection, event_id, ended, reason=reason, now_ms=batch.now_ms, actor="orders")
        sold = [r for r in records if r.status == "confirmed"]
        if held := [r.reservation_id for r in sold if r.reservation_id not in batch.reacquired]:
            await batch.connection.execute(SELL_SEATS, {"event_id": event_id, "ids": held})
        await emit(batch.connection, event_id, [_sold_event(record) for record in sold], actor="orders")


def _sold_event(record: ReservationRow) -> ReservationEvent:
    after = {"status": "confirmed", "order_reference": record.order_reference, "total_minor": record.total_minor}
    after |= record.selection.shown()
    return ReservationEvent("confirmed", record.reservation_id, record.version + 1, after)
