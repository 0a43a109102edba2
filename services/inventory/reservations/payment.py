"""Payment owns a hold by name: only the order whose reference is stored may end the payment, confirm or release.

Every step is decided under the reservations' locks in the ledger, may be repeated, and never needs the gate, which
follows as far as it can.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.layout import EventCache, Layout
from services.inventory.metrics import DRIFT
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.expiry import MARK_SEATS, ReleaseReason, release_stock, sync_redis
from services.inventory.reservations.payment_locks import Asked, Lock, lock_for_payment, lock_reservations
from services.inventory.reservations.repository import ReservationRow, step_done
from shared.contracts.inventory import CustomerLimit, PaymentStep, StepDone
from shared.postgres.engine import statement
from shared.postgres.errors import outlive_deadlocks
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
MOVE = statement(__package__, "move_reservations")
COUNT_CUSTOMERS = statement(__package__, "count_customers")
TAKE_SECTIONS = statement(__package__, "take_sections")
RETAKE_SEATS = statement(__package__, "retake_seats")

Used = dict[tuple[str | None, str], Counter[str]]  # by event or tour, and customer


@dataclass(slots=True)
class _PaymentBatch:
    """One batch of steps under its locks: what the records become, and what follows from it."""

    connection: AsyncConnection
    records: Mapping[str, ReservationRow]
    now_ms: int
    how: ReleaseReason
    moved: dict[str, str | None] = field(default_factory=dict)
    retaken: list[str] = field(default_factory=list)
    over: dict[str, CustomerLimit] = field(default_factory=dict)  # by order, whose reservation is not begun

    def move(
        self, record: ReservationRow, status: str, *, reference: str | None, customer_key: str | None = None
    ) -> None:
        record.status = status  # type: ignore[assignment]
        record.order_reference = reference
        self.moved[record.reservation_id] = customer_key or self.moved.get(record.reservation_id)

    def ids(self, *statuses: str) -> dict[str, list[str]]:
        """Of what moved, those now in one of these, by event."""
        found: dict[str, list[str]] = {}
        for reservation_id in sorted(self.moved):
            record = self.records[reservation_id]
            if record.status in statuses and reservation_id not in self.retaken:
                found.setdefault(record.event_id, []).append(reservation_id)
        return dict(sorted(found.items()))


Decide = Callable[[_PaymentBatch], Awaitable[list[str]]]


class Payments:
    """The five steps of payment."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue

    async def begin(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """Stores the order's reference and gives the fan time to pay, once."""

        async def decide(turn: _PaymentBatch) -> list[str]:
            usage = await self._usage(turn, steps)
            return [self._begin(turn, step, usage) for step in steps]

        return await self._run(steps, decide, lock=lock_for_payment)

    async def end(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """The payment is over, the hold is not."""

        async def decide(turn: _PaymentBatch) -> list[str]:
            return [_end(turn, step) for step in steps]

        return await self._run(steps, decide)

    async def confirm(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """What was held is sold."""

        async def decide(turn: _PaymentBatch) -> list[str]:
            return [_confirm(turn, step) for step in steps]

        return await self._run(steps, decide)

    async def release(self, steps: Sequence[PaymentStep], *, how: ReleaseReason = "order") -> list[StepDone]:
        """The order has ended unpaid: what was held is free."""

        async def decide(turn: _PaymentBatch) -> list[str]:
            return [_release(turn, step) for step in steps]

        return await self._run(steps, decide, how=how)

    async def reacquire(self, steps: Sequence[PaymentStep]) -> list[StepDone]:
        """A payment that came late: the same places, if they are still ours or all free."""

        async def decide(turn: _PaymentBatch) -> list[str]:
            return [await _retake(turn, step) for step in steps]

        return await self._run(steps, decide)

    async def _run(
        self,
        steps: Sequence[PaymentStep],
        decide: Decide,
        *,
        how: ReleaseReason = "order",
        lock: Lock = lock_reservations,
    ) -> list[StepDone]:
        ids = [step.reservation_id for step in steps]
        asked: Asked = {"ids": ids, "customer_keys": [step.customer_key for step in steps]}
        turn, words = await outlive_deadlocks(lambda: self._decided(lock, asked, decide, how))
        await self._follow(turn)
        return [
            step_done(turn.records.get(step.reservation_id), word, over=turn.over.get(step.order_reference))
            for step, word in zip(steps, words, strict=True)
        ]

    async def _decided(
        self, lock: Lock, asked: Asked, decide: Decide, how: ReleaseReason
    ) -> tuple[_PaymentBatch, list[str]]:
        async with self._db.begin() as connection:
            now_ms, records = await lock(connection, asked)
            now_ms = min(now_ms + self._redis_stock.clock_offset_ms, self._redis_stock.slowest_ms())
            turn = _PaymentBatch(connection, records, now_ms, how)
            words = await decide(turn)
            await _write(turn)
        return turn, words

    async def _usage(self, turn: _PaymentBatch, steps: Sequence[PaymentStep]) -> tuple[Used, Used]:
        """Of customers, locked before: tickets and open orders at each event, and tickets of each tour."""
        customers = {
            (turn.records[step.reservation_id].event_id, step.customer_key)
            for step in steps
            if step.customer_key and step.reservation_id in turn.records
        }
        events, tours = defaultdict[Any, Counter[str]](Counter), defaultdict[Any, Counter[str]](Counter)
        toured = set[tuple[str | None, str]]()
        if customers:
            values = {"event_ids": [c[0] for c in customers], "customer_keys": [c[1] for c in customers]}
            for row in await turn.connection.execute(COUNT_CUSTOMERS, values):
                if row.bought_at == row.event_id:
                    open_now = int(row.status == "paying")
                    events[row.event_id, row.customer_key].update(tickets=int(row.tickets), open=open_now)
                tour_id = self._catalogue.layout(row.event_id).tour_id
                if (tour_id, row.reservation_id) not in toured:  # two events of a tour both name it
                    tours[tour_id, row.customer_key].update(tickets=int(row.tickets))
                    toured.add((tour_id, row.reservation_id))
        return events, tours

    def _begin(self, turn: _PaymentBatch, step: PaymentStep, used: tuple[Used, Used]) -> str:
        record = turn.records.get(step.reservation_id)
        if record is None:
            return "unknown"
        if record.status in ("paying", "confirmed") and record.order_reference == step.order_reference:
            return "done"
        if record.status == "paying":
            return "payment-in-progress"
        if record.status != "pending_payment" or turn.now_ms > record.release_at_ms:
            return "ended"
        if step.given_back is not None and step.given_back != record.given_back:
            return "changed"
        layout = self._catalogue.layout(record.event_id)
        if step.customer_key:
            here = used[0][record.event_id, step.customer_key]
            on_tour = used[1][layout.tour_id, step.customer_key]
            if over := _over(layout, here, on_tour, record.quantity):
                turn.over[step.order_reference] = over
                return "limit-exceeded"
            here.update(tickets=record.quantity, open=1)
            on_tour.update(tickets=record.quantity)
        if not record.payment_extended:
            record.reserved_until_ms = max(record.reserved_until_ms, turn.now_ms + layout.pay_ttl_s * 1000)
            record.payment_extended = True
        turn.move(record, "paying", reference=step.order_reference, customer_key=step.customer_key)
        return "done"

    async def _follow(self, turn: _PaymentBatch) -> None:
        """The gate takes what the ledger decided; what it misses is drift, found by reconcile."""
        try:
            for event_id in {record.event_id for record in turn.records.values()}:
                moved = [turn.records[r] for r in turn.moved if turn.records[r].event_id == event_id]
                await sync_redis(
                    self._redis_stock, event_id, [r for r in moved if r.reservation_id not in turn.retaken]
                )
                for record in moved:
                    if record.reservation_id in turn.retaken:
                        await self._redis_stock.retake(event_id, record.reservation_id, record.holder, record.basket())
        except REDIS_AWAY as away:
            DRIFT.labels("follow-up").inc()
            log.warning("gate.behind", extra=data(error=type(away).__name__))


def _over(
    layout: Layout, used: Mapping[str, int], on_tour: Mapping[str, int], quantity: int
) -> CustomerLimit | None:  # fmt: skip
    """The customer's limit that so many tickets more would pass."""
    tickets_max, open_max = layout.tickets_per_customer, layout.open_orders_per_customer
    tour_max = layout.tour_tickets_per_customer
    if tickets_max and used["tickets"] + quantity > tickets_max:
        return CustomerLimit(limit="tickets_per_customer", allowed=tickets_max, used=used["tickets"])
    if open_max and used["open"] >= open_max:
        return CustomerLimit(limit="open_orders_per_customer", allowed=open_max, used=used["open"])
    if tour_max and on_tour["tickets"] + quantity > tour_max:
        return CustomerLimit(limit="tour_tickets_per_customer", allowed=tour_max, used=on_tour["tickets"])
    return None


def _end(turn: _PaymentBatch, step: PaymentStep) -> str:
    record = turn.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    if record.status == "paying" and record.order_reference == step.order_reference:
        turn.move(record, "pending_payment", reference=step.order_reference)
        return "done"
    if record.status == "pending_payment" and record.order_reference == step.order_reference:
        return "done"
    return "not-owner" if record.is_live else "ended"


def _confirm(turn: _PaymentBatch, step: PaymentStep) -> str:
    record = turn.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    mine = record.order_reference == step.order_reference
    if record.status == "paying" and mine:
        turn.move(record, "confirmed", reference=step.order_reference)
        return "done"
    if record.status == "confirmed" and mine:
        return "done"
    return "not-owner" if record.is_live or record.status == "confirmed" else "ended"


def _release(turn: _PaymentBatch, step: PaymentStep) -> str:
    record = turn.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    mine = record.order_reference == step.order_reference
    if record.is_live and mine:
        turn.move(
            record, "expired" if turn.now_ms > record.release_at_ms else "cancelled", reference=step.order_reference
        )
        return "done"
    if record.is_live:
        return "not-owner"
    return "done" if mine and record.status in ("expired", "cancelled") else "ended"


async def _retake(turn: _PaymentBatch, step: PaymentStep) -> str:
    record = turn.records.get(step.reservation_id)
    if record is None:
        return "unknown"
    mine = record.order_reference == step.order_reference
    if record.status == "confirmed":
        return "done" if mine else "not-owner"
    if record.status == "paying" and not mine:
        return "payment-in-progress"
    if record.is_live:  # still ours
        turn.move(record, "confirmed", reference=step.order_reference)
        return "done"
    if record.status not in ("expired", "cancelled") or record.quantity == 0:
        return "ended"
    savepoint = await turn.connection.begin_nested()
    if not await _take_again(turn.connection, record):
        await savepoint.rollback()
        return "taken"
    await savepoint.commit()
    turn.retaken.append(record.reservation_id)
    turn.move(record, "confirmed", reference=step.order_reference)
    return "done"


async def _take_again(connection: AsyncConnection, record: ReservationRow) -> bool:
    """All of it or nothing, from what the ledger has left."""
    wanted: Counter[str] = Counter(seat[0] for seat in record.seats)
    for section_id, quantity, _ in record.ga:
        wanted[section_id] += quantity
    sections = {"event_id": record.event_id, "section_ids": list(wanted), "quantities": list(wanted.values())}
    if (await connection.execute(TAKE_SECTIONS, sections)).rowcount != len(wanted):
        return False
    which = {"event_id": record.event_id, "reservation_id": record.reservation_id}
    return bool((await connection.execute(RETAKE_SEATS, which)).rowcount == len(record.seats))


async def _write(turn: _PaymentBatch) -> None:
    """The rows of what moved, then their places, then the facts."""
    if not turn.moved:
        return
    moved = [turn.records[reservation_id] for reservation_id in sorted(turn.moved)]
    await turn.connection.execute(
        MOVE,
        {
            "event_ids": [r.event_id for r in moved], "ids": [r.reservation_id for r in moved],
            "statuses": [r.status for r in moved], "references": [r.order_reference for r in moved],
            "customer_keys": [turn.moved[r.reservation_id] for r in moved],
            "untils": [str(r.reserved_until_ms) for r in moved],
        },
    )  # fmt: skip
    for event_id, ids in turn.ids("expired", "cancelled").items():
        await release_stock(turn.connection, event_id, ids, how=turn.how, now_ms=turn.now_ms, actor="orders")
    for event_id, ids in turn.ids("confirmed").items():
        await turn.connection.execute(MARK_SEATS, {"event_id": event_id, "ids": ids, "mark": "sold"})
    bought = [record for record in moved if record.status == "confirmed"]
    for event_id in sorted({record.event_id for record in bought}):
        facts = [_bought(record) for record in bought if record.event_id == event_id]
        await emit(turn.connection, event_id, facts, actor="orders")


def _bought(record: ReservationRow) -> ReservationEvent:
    after = {"status": "confirmed", "order_reference": record.order_reference, "total_minor": record.total_minor}
    return ReservationEvent("confirmed", record.reservation_id, record.version + 1, {**after, **record.places()})
