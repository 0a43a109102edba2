"""Payment steps on holds: begin, end, confirm, release, and reacquire for a payment that came late.

An order owns a hold by its reference: only the order whose reference is stored may end the payment, confirm or release.
Every step is decided in PostgreSQL under the reservations' locks and may be repeated. None needs Redis, which follows.

Every purchase begins and confirms: each is one statement for a batch, which locks, decides, writes and answers. The
other steps are rare; they lock and read, decide here, and write.
"""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.client import RedisStock, as_in_db
from services.inventory.reservations.expiry import ReleaseReason, release_stock
from services.inventory.store.reservations import (
    COMMITTED,
    Key,
    ReservationEvent,
    ReservationRow,
    emit,
    event_body,
    keys_of,
    lock_reservations,
    redis_epoch,
    reservation_row,
    step_done,
)
from shared.concurrency.background import wake
from shared.contracts.frames import ReservationState
from shared.contracts.inventory import Binding, CustomerLimit, PaymentStep, StepDone, StepOutcome
from shared.postgres.engine import fenced, raw_statement, retry_deadlocks, statement
from shared.runtime.tracing import sale_log
from shared.security.limits import Buckets

BEGIN_PAYMENTS, CONFIRM_SALES = raw_statement(__package__, "begin"), raw_statement(__package__, "confirm")
# The two plans are kept: they look up whole keys only, at every size of the tables (`proof/plans/test_statements.py`),
# and to make one anew takes twice as long as to run it for one reservation.
BEGIN_PLAIN = f"BEGIN {COMMITTED}; SET LOCAL plan_cache_mode = force_generic_plan"
LOCK_CUSTOMERS = f"{BEGIN_PLAIN}; SELECT pg_advisory_xact_lock(unnest(ARRAY[{{}}]::bigint[]))"
SELL_SEATS = statement(__package__, "sell_seats")
MOVE_RESERVATIONS = statement(__package__, "move_reservations")
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
# The hold goes on; as it was before, for the request that began the payment.
END = Transition("pending_payment", UNPAID, _not_owner(LIVE), by_owner=PAYING)
CONFIRM = Transition("confirmed", SOLD, _not_owner(LIVE | SOLD), by_owner=PAYING)
# The hold of an order that ended unpaid.
RELEASE = Transition("cancelled", ENDED, _not_owner(LIVE), by_owner=LIVE)
# For a payment that came late: the same places, if they are still held or all available.
LATE: dict[ReservationState, StepOutcome] = {"paying": "payment-in-progress", "confirmed": "not-owner"}
REACQUIRE = Transition("confirmed", SOLD, LATE, by_owner=PAYING, by_any=UNPAID | ENDED)
RETURN = Transition("returned", RETURNED, _not_owner(LIVE | SOLD | RETURNED), by_owner=SOLD)


class _Taken(NamedTuple):
    """What became of one step: its outcome, the reservation after it, the limit that it would exceed, and how it has
    bound the hold.
    """

    outcome: StepOutcome
    record: ReservationRow | None = None
    over: CustomerLimit | None = None
    binding: Binding | None = None
    has_moved: bool = False


Wanted = tuple[Key, PaymentStep]
TakeTurn = Callable[[Sequence[Wanted]], Awaitable[dict[str, _Taken | None]]]
TakeIn = Callable[[Any, Sequence[Wanted]], Awaitable[dict[str, _Taken | None]]]  # by this connection of the driver


@dataclass(slots=True)
class _PaymentBatch:
    """One batch of one rare step under its locks: which reservations it moved, and which of them it reacquired, or left
    as if no payment had begun.
    """

    connection: AsyncConnection
    records: Mapping[str, ReservationRow]
    now_ms: int
    moved: dict[str, ReservationRow] = field(default_factory=dict)
    reacquired: dict[str, int] = field(default_factory=dict)  # Redis' epoch at that time
    unbegun: set[str] = field(default_factory=set)


class Payments:
    """The payment steps of orders."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, given_back: Buckets) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._given_back = given_back

    async def take(
        self, transition: Transition, steps: Sequence[PaymentStep], *, reason: ReleaseReason = "order"
    ) -> list[StepDone]:
        """Takes a batch of one kind of step; one result per step, in order."""
        if transition is BEGIN:
            return await self._take_in_turns(steps, self._begin, locked=self._limited_customers)
        if transition is CONFIRM:
            return await self._take_in_turns(steps, self._confirm)

        async def run_locked() -> tuple[_PaymentBatch, list[StepOutcome]]:
            async with self._db.begin() as connection:
                keys = await keys_of(connection, ((step.event_id, step.reservation_id) for step in steps))
                now_ms, records = await lock_reservations(connection, keys)
                now_ms = min(now_ms + self._redis_stock.clock_offset_ms, self._redis_stock.slowest_ms())
                batch = _PaymentBatch(connection, records, now_ms)
                outcomes = [await self._take_one(transition, batch, step) for step in steps]
                await _write(batch, reason)
            return batch, outcomes

        batch, outcomes = await retry_deadlocks(run_locked)
        if reason == "order":
            self._count_given_back(batch)
        await self._sync_redis(batch.moved, batch.reacquired)
        return [
            step_done(batch.records.get(step.reservation_id), outcome)
            for step, outcome in zip(steps, outcomes, strict=True)
        ]

    # -- begin and confirm ---------------------------------------------------------------------------------------------

    async def _take_in_turns(
        self, steps: Sequence[PaymentStep], take: TakeIn, *,
        locked: Callable[[Sequence[Wanted]], set[str]] = lambda _: set(),
    ) -> list[StepDone]:  # fmt: skip
        """Takes steps by one statement, or by a few if some concern the same reservation or customer, in a transaction
        that begins with the locks of these customers.
        """
        named = [(step.event_id, step.reservation_id) for step in steps]
        if None in (event_id for event_id, _ in named):
            async with self._db.connect() as connection:
                named = [*await keys_of(connection, named)]
        wanted: list[Wanted] = [((event_id or "", r), step) for (event_id, r), step in zip(named, steps, strict=True)]

        async def run() -> list[_Taken]:
            async with fenced(self._db, _opening(locked(wanted))) as driver:
                return await _in_turns(wanted, partial(take, driver))

        taken = await retry_deadlocks(run)
        await self._sync_redis({t.record.reservation_id: t.record for t in taken if t.has_moved and t.record}, {})
        answers_all = take == self._begin
        return [step_done(t.record, t.outcome, over=t.over, binding=t.binding, answers_all=answers_all) for t in taken]

    def _limited_customers(self, wanted: Iterable[Wanted]) -> set[str]:
        """The customers whom their event limits: each must be counted by one transaction at a time."""
        return {
            step.customer_key
            for (event_id, _), step in wanted
            if step.customer_key and self._catalogue.limits_customers(event_id)
        }

    async def _begin(self, driver: Any, wanted: Sequence[Wanted]) -> dict[str, _Taken | None]:
        """Binds holds to their orders, within the customers' limits, and gives them the time to pay, once."""
        steps = [step for _, step in wanted]
        owner_ids = [None if step.owner_ids is None else orjson.dumps(step.owner_ids).decode() for step in steps]
        with sale_log.timed("sale.statement", statement="inventory:begin"):
            rows = await driver.fetch(
                BEGIN_PAYMENTS, *_columns(wanted), [step.customer_key for step in steps], owner_ids,
                self._redis_stock.slowest_ms(), self._redis_stock.clock_offset_ms,
            )  # fmt: skip
        by_id = {step.reservation_id: step for step in steps}
        return {row["reservation_id"]: _begun(row, by_id[row["reservation_id"]]) for row in rows}

    async def _confirm(self, driver: Any, wanted: Sequence[Wanted]) -> dict[str, _Taken | None]:
        """Sells holds to the orders that pay for them."""
        event_ids = sorted({event_id for (event_id, _), _ in wanted})
        events = [event_body(event_id, "confirmed", [], actor="orders") for event_id in event_ids]
        bodies = [orjson.dumps(event).decode() for event in events]
        with sale_log.timed("sale.statement", statement="inventory:confirm"):
            rows = await driver.fetch(CONFIRM_SALES, *_columns(wanted), event_ids, bodies)
        wake("inventory")
        by_id = {step.reservation_id: step for _, step in wanted}
        return {row["reservation_id"]: _confirmed(row, by_id[row["reservation_id"]]) for row in rows}

    # -- the rare steps ------------------------------------------------------------------------------------------------

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
        if transition is END and step.binding is not None:
            if record.version != step.binding.version:
                return "not-owner"
            if step.binding.unpaid_until_ms is not None:
                record.reserved_until_ms = step.binding.unpaid_until_ms
                batch.unbegun.add(record.reservation_id)
        if transition is EXTEND:
            if batch.now_ms > record.release_at_ms:
                return "ended"
            pay_ttl_ms = self._catalogue.layout(record.event_id).pay_ttl_s * 1000
            record.reserved_until_ms = max(record.reserved_until_ms, batch.now_ms + pay_ttl_ms)
        if status == "confirmed" and record.status in ENDED and (refusal := await _reacquire(batch, record)):
            return refusal
        if status == "cancelled" and batch.now_ms > record.release_at_ms:
            status = "expired"
        is_unbegun = record.reservation_id in batch.unbegun
        record.status, record.order_reference = status, None if is_unbegun else step.order_reference
        batch.moved[record.reservation_id] = record
        return "done"

    async def _sync_redis(self, moved: Mapping[str, ReservationRow], reacquired: Mapping[str, int]) -> None:
        with self._redis_stock.follows(record.event_id for record in moved.values()):
            for event_id, records in _by_event(moved).items():
                held = [as_in_db(record) for record in records if record.reservation_id not in reacquired]
                await self._redis_stock.follow(event_id, held)
                for record in records:
                    if record.reservation_id in reacquired:
                        bought = {**as_in_db(record), "holder": record.holder, "has": record.selection.text()}
                        epoch = reacquired[record.reservation_id]
                        await self._redis_stock.follow(event_id, [bought], epoch=epoch)


def _opening(customer_keys: Iterable[str]) -> str:
    """Begins a transaction and locks these customers, by the hash of their keys and in its order. All payments of a
    customer take turns, over all events: a tour's limit counts several.
    """
    hashes = (blake2b(f"customer {key}".encode(), digest_size=8).digest() for key in customer_keys)
    locks = sorted(int.from_bytes(digest, signed=True) for digest in hashes)
    return LOCK_CUSTOMERS.format(", ".join(map(str, locks))) if locks else BEGIN_PLAIN


async def _in_turns(wanted: Sequence[Wanted], take: TakeTurn) -> list[_Taken]:
    """The results of steps, taken so that no statement has two for the same reservation or customer. What was stale is
    locked and is taken once more.
    """
    taken: dict[int, _Taken] = {}
    for turn in _turns([step for _, step in wanted]):
        left = turn
        while left:
            answers = await take([wanted[at] for at in left])
            found = {at: answers.get(wanted[at][0][1], _Taken("unknown")) for at in left}
            taken |= {at: answer for at, answer in found.items() if answer is not None}
            assert left is turn or None not in found.values(), "what is locked does not change"
            left = [at for at in left if found[at] is None]
    return [taken[at] for at in range(len(wanted))]


def _turns(steps: Sequence[PaymentStep]) -> list[list[int]]:
    """The positions of the steps of each turn: each comes after the earlier ones on its reservation or customer."""
    turns = list[list[int]]()
    next_turn: dict[tuple[str, str], int] = {}
    for at, step in enumerate(steps):
        concerns = [("reservation", step.reservation_id)]
        concerns += [("customer", step.customer_key)] if step.customer_key else []
        turn = max(next_turn.get(one, 0) for one in concerns)
        next_turn |= dict.fromkeys(concerns, turn + 1)
        turns += [[]] * (turn == len(turns))
        turns[turn].append(at)
    return turns


def _columns(wanted: Sequence[Wanted]) -> tuple[list[str], list[str], list[str]]:
    return [event for (event, _), _ in wanted], [r for (_, r), _ in wanted], [s.order_reference for _, s in wanted]


def _begun(row: Any, step: PaymentStep) -> _Taken | None:
    """The result of one begun payment; None if its reservation was stale."""
    *columns, refusal, until_ms, allowed, used = row
    record = reservation_row(*columns)
    match refusal:
        case "stale":
            return None
        case "stranger":
            return _Taken("unknown")
        case "repeat":
            return _Taken("done", record)
        case "status":
            return _Taken(BEGIN.answer(record, step) or "ended", record)
        case "ended":
            return _Taken("ended", record)
        case None:
            unpaid_until_ms = None if record.payment_extended else record.reserved_until_ms
            record.status, record.order_reference, record.reserved_until_ms = BEGIN.to, step.order_reference, until_ms
            record.version += 1
            binding = Binding(version=record.version, unpaid_until_ms=unpaid_until_ms)
            return _Taken("done", record, binding=binding, has_moved=True)
    return _Taken("limit-exceeded", record, CustomerLimit(limit=refusal, allowed=allowed, used=used))


def _confirmed(row: Any, step: PaymentStep) -> _Taken | None:
    """The result of one sale; its record has no places. None if its reservation was stale."""
    *columns, is_sold = row
    record = reservation_row(*columns, None, None)
    if is_sold:
        record.status, record.version = CONFIRM.to, record.version + 1
        return _Taken("done", record, has_moved=True)
    answer = CONFIRM.answer(record, step)
    return None if answer is None else _Taken(answer, record)


def _by_event(moved: Mapping[str, ReservationRow]) -> dict[str, list[ReservationRow]]:
    """In the order of their keys."""
    by_event = defaultdict[str, list[ReservationRow]](list)
    for _, record in sorted(moved.items()):
        by_event[record.event_id].append(record)
    return dict(sorted(by_event.items()))


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
    batch.reacquired[record.reservation_id] = await redis_epoch(batch.connection, event_id)
    return None


async def _write(batch: _PaymentBatch, reason: ReleaseReason) -> None:
    """Writes the moved reservations, then their places, then the events."""
    if not batch.moved:
        return
    moved = [record for _, record in sorted(batch.moved.items())]
    columns = {
        "event_ids": [r.event_id for r in moved], "ids": [r.reservation_id for r in moved],
        "statuses": [r.status for r in moved], "references": [r.order_reference for r in moved],
        "untils": [str(r.reserved_until_ms) for r in moved],
        "unbegun": ["yes" if r.reservation_id in batch.unbegun else "" for r in moved],
    }  # fmt: skip
    await batch.connection.execute(MOVE_RESERVATIONS, columns)
    for record in moved:
        record.version += 1
    for event_id, records in _by_event(batch.moved).items():
        ended = [r.reservation_id for r in records if r.status in ENDED]
        await release_stock(batch.connection, event_id, ended, reason=reason, now_ms=batch.now_ms, actor="orders")
        sold = [r for r in records if r.status == "confirmed"]
        if held := [r.reservation_id for r in sold if r.reservation_id not in batch.reacquired]:
            await batch.connection.execute(SELL_SEATS, {"event_id": event_id, "ids": held})
        await emit(batch.connection, event_id, [_sold_event(record) for record in sold], actor="orders")


def _sold_event(record: ReservationRow) -> ReservationEvent:
    after = {"status": "confirmed", "order_reference": record.order_reference, "total_minor": record.total_minor}
    after |= record.selection.shown()
    return ReservationEvent("confirmed", record.reservation_id, record.version, after)
