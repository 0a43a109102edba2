"""Reservations in PostgreSQL: insert holds in batches, read reservations with their places, lock them for a payment,
and write the events of what changed.

The second guard against overselling: it never trusts Redis. Places are locked in key order and taken only from what is
left. A batch that fails is rolled back and replayed hold by hold, so that no hold makes another fail.

All that changed together is one event in the outbox, each reservation with its places. `seat.reserved|released|sold`
are inside it and not events of their own: a selection changes as a whole, and an event per fan would cost more than the
hold itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, NamedTuple

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.layout.layout import Variant
from services.inventory.layout.selection import GaLine, SeatLine, SeatPosition, Selection, StockSelection, seat_columns
from shared.concurrency.background import wake
from shared.contracts.event_parts.price_types import quota_id
from shared.contracts.frames import Event, ReservationState
from shared.contracts.inventory import (
    BATCH_MAX,
    Binding,
    CustomerLimit,
    ReminderConsent,
    Reservation,
    ReservedItem,
    StepDone,
    StepOutcome,
)
from shared.errors.database import is_busy, is_gone
from shared.messaging.outbox import emit_bodies
from shared.postgres.engine import AsyncEngine, fenced, raw_statement, retry_deadlocks, statement
from shared.runtime.tracing import sale_log

READ = statement(__package__, "read_reservations")
LOCK = statement(__package__, "lock_reservations")
SEAT_STATUSES = statement(__package__, "seat_statuses")
REMOVE_PLACES = statement(__package__, "remove_places")
FIND_EVENTS = text(
    "SELECT reservation_id, event_id FROM inventory.reservation WHERE reservation_id = ANY(CAST(:ids AS text[]))"
)
REDIS_EPOCH = text("SELECT redis_epoch FROM inventory.event WHERE event_id = :event_id")
ACKNOWLEDGE_CONSENTS = text(
    "UPDATE inventory.reservation SET reminders_requested = false "
    "WHERE reservation_id = ANY(CAST(:ids AS text[])) AND reminders_requested"
)
PENDING_CONSENTS = text(
    "SELECT event_id, reservation_id, email FROM inventory.reservation WHERE reminders_requested "
    "ORDER BY reservation_id LIMIT :count_max"
)

Key = tuple[str, str]  # event and id; the event is the shard key


@dataclass(slots=True)
class ReservationRow:
    """A reservation with its places."""

    event_id: str
    reservation_id: str
    holder: str
    status: ReservationState
    lane: int
    join_seq: int
    total_minor: int
    currency: str
    reserved_until_ms: int
    grace_s: int
    order_reference: str | None
    fingerprint: str
    extended: bool
    payment_extended: bool
    version: int
    released_tickets: int
    selection: Selection

    @property
    def quantity(self) -> int:
        return self.selection.quantity

    @property
    def is_live(self) -> bool:
        return self.status in ("pending_payment", "paying")

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000

    def to_contract(self) -> Reservation:
        """As the other services see it."""
        seats = [ReservedItem(**line._asdict()) for line in self.selection.seats]
        ga = [ReservedItem(**line._asdict() | {"section_id": line.named[0]}) for line in self.selection.ga]
        return Reservation(
            event_id=self.event_id, reservation_id=self.reservation_id, holder=self.holder,
            status=self.status, lane=self.lane, join_seq=self.join_seq, total_minor=self.total_minor,
            currency=self.currency, reserved_until_ms=self.reserved_until_ms, grace_s=self.grace_s,
            order_reference=self.order_reference, lines=seats + ga,
        )  # fmt: skip


@dataclass(slots=True)
class LiveHold:
    """A live reservation as Redis needs it."""

    reservation_id: str
    holder: str
    status: ReservationState
    reserved_until_ms: int
    fingerprint: str
    version: int
    grace_s: int
    stock: StockSelection

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000


def step_done(
    record: ReservationRow | None, outcome: StepOutcome, *, over: CustomerLimit | None = None,
    binding: Binding | None = None, answers_all: bool = False,
) -> StepDone:  # fmt: skip
    """The result of one step, with the reservation as it is now; all of it if asked."""
    if record is None:
        return StepDone(outcome=outcome)
    return StepDone(
        outcome=outcome, over=over, binding=binding, order_reference=record.order_reference, status=record.status,
        reserved_until_ms=record.reserved_until_ms, reservation=record.to_contract() if answers_all else None,
    )  # fmt: skip


async def keys_of(connection: AsyncConnection, named: Iterable[tuple[str | None, str]]) -> list[Key]:
    """The keys of these reservations, in order. An event that is not named is looked up by the id alone, on every
    shard; it is empty if there is no such reservation.
    """
    keys, found = list(named), dict[str, str]()
    if unnamed := [reservation_id for event_id, reservation_id in keys if event_id is None]:
        rows = await connection.execute(FIND_EVENTS, {"ids": unnamed})
        found = {row.reservation_id: row.event_id for row in rows}
    return [(found.get(r, "") if event_id is None else event_id, r) for event_id, r in keys]


async def read_reservations(connection: AsyncConnection, keys: Sequence[Key]) -> dict[str, ReservationRow]:
    """Existing reservations by id."""
    rows = await connection.execute(READ, _key_columns(keys))
    return {row.reservation_id: reservation_row(*row) for row in rows}


def _key_columns(keys: Sequence[Key]) -> dict[str, list[str]]:
    return {"event_ids": [event_id for event_id, _ in keys], "ids": [reservation_id for _, reservation_id in keys]}


async def read_seat_statuses(
    connection: AsyncConnection, event_id: str, seats: Iterable[Sequence[Any]]
) -> dict[SeatPosition, str]:
    rows = await connection.execute(SEAT_STATUSES, {"event_id": event_id, **seat_columns(seats)})
    return {(row.section_id, row.position): row.status for row in rows}


def reservation_row(*columns: Any) -> ReservationRow:
    """From the columns of a statement: those of `ReservationRow`, with its seats and GA tickets as JSON texts."""
    *own, seats, ga = columns
    selection = Selection(
        tuple(SeatLine(*line) for line in orjson.loads(seats or "[]")),
        tuple(GaLine(*line) for line in orjson.loads(ga or "[]")),
    )
    return ReservationRow(*[*own, selection])


# -- events ------------------------------------------------------------------------------------------------------------

EventKind = Literal["created", "expired", "cancelled", "confirmed", "returned", "given-back", "repriced"]
SEAT_EVENTS: dict[EventKind, str] = {
    "created": "seat.reserved", "expired": "seat.released", "cancelled": "seat.released", "confirmed": "seat.sold",
    "returned": "seat.released", "given-back": "seat.released", "repriced": "seat.reserved",
}  # fmt: skip


class ReservationEvent(NamedTuple):
    """A change of one reservation, its new version, and its places in `after`."""

    kind: EventKind
    reservation_id: str
    version: int
    after: dict[str, Any]


def event_body(
    event_id: str, kind: EventKind, events: Sequence[ReservationEvent], *, actor: str
) -> dict[str, Any]:  # fmt: skip
    """One event for changes of one kind, as the outbox has it."""
    changed = [{"reservation_id": e.reservation_id, "version": e.version, **e.after} for e in events]
    after = {"seats_are": SEAT_EVENTS[kind], "reservations": changed}
    event = Event(type=f"reservation.{kind}", event_id=event_id, actor=actor, aggregate="stock")
    return {**event.model_dump(), "after": after}


async def emit(connection: AsyncConnection, event_id: str, events: Sequence[ReservationEvent], *, actor: str) -> None:
    """Writes one event per kind into the outbox, in the caller's transaction."""
    kinds: dict[EventKind, list[ReservationEvent]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    if kinds:
        bodies = [event_body(event_id, kind, some, actor=actor) for kind, some in kinds.items()]
        await emit_bodies(connection, "inventory", bodies)


# -- holds -------------------------------------------------------------------------------------------------------------

ConflictReason = Literal["exists", "refused", "stale"]
DB_ERRORS = (asyncpg.PostgresError, ValueError)
WriteOutcome = Literal["written"] | ConflictReason | Exception

COMMITTED = "ISOLATION LEVEL READ COMMITTED"  # also if a connection pooler changed the session's default
BEGIN_FENCED = (
    f"BEGIN {COMMITTED}; SELECT pg_advisory_xact_lock_shared(hashtextextended('inventory stock {{event_id}}', 0))"
)
INSERT_HOLDS = raw_statement(__package__, "insert_holds")


class HoldInsert(NamedTuple):
    """A hold that Redis granted, to be written."""

    reservation_id: str
    holder: str
    selection: Selection
    currency: str
    until_ms: int
    fingerprint: str
    lane: int = 0
    join_seq: int = 0
    email: str | None = None
    reminders: bool = False
    variant: Variant | None = None
    allotments: tuple[str, ...] = ()  # of its seats, if not all are everybody's


class WriteConflict(Exception):
    """The batch cannot be written: a reservation exists, places are not available, or Redis has an older epoch."""

    def __init__(self, outcome: ConflictReason) -> None:
        super().__init__(outcome)
        self.outcome: WriteOutcome = outcome


async def write_holds(db: AsyncEngine, event_id: str, epoch: int, holds: Sequence[HoldInsert]) -> list[WriteOutcome]:
    """One outcome per hold, whose ids must differ. Raises `Unavailable` if it is unknown what was written."""
    try:
        async with fenced(db, BEGIN_FENCED.format(event_id=event_id)) as driver:
            await insert_holds(driver, event_id, epoch, holds)
        wake("inventory")
        return ["written"] * len(holds)
    except WriteConflict as conflict:
        if len(holds) == 1 or conflict.outcome == "stale":
            return [conflict.outcome] * len(holds)
    except DB_ERRORS as broken:
        if len(holds) == 1 and not is_busy(broken):
            return [broken]
    return await retry_deadlocks(lambda: _replay(db, event_id, epoch, holds))


async def _replay(db: AsyncEngine, event_id: str, epoch: int, holds: Sequence[HoldInsert]) -> list[WriteOutcome]:
    """Writes each hold under its own savepoint, in the order of their ids."""
    outcomes: dict[str, WriteOutcome] = {}
    async with fenced(db, BEGIN_FENCED.format(event_id=event_id)) as driver:
        for member in sorted(holds, key=lambda h: h.reservation_id):
            outcomes[member.reservation_id] = await _write_one(driver, event_id, epoch, member)
    wake("inventory")
    return [outcomes[member.reservation_id] for member in holds]


async def _write_one(driver: Any, event_id: str, epoch: int, member: HoldInsert) -> WriteOutcome:
    outcome: WriteOutcome = "written"
    await driver.execute("SAVEPOINT member")
    try:
        await insert_holds(driver, event_id, epoch, [member])
    except WriteConflict as conflict:
        outcome = conflict.outcome
    except DB_ERRORS as broken:
        if is_gone(broken) or is_busy(broken):
            raise
        outcome = broken
    await driver.execute("RELEASE SAVEPOINT member" if outcome == "written" else "ROLLBACK TO SAVEPOINT member")
    return outcome


async def insert_holds(driver: Any, event_id: str, epoch: int, holds: Sequence[HoldInsert]) -> None:
    """Writes reservations, then sections, then seats, the order in which every writer locks. Raises `WriteConflict`.

    The fence must have been taken in an earlier statement, because this one reads Redis' epoch.
    """
    seats = [
        (s.section_id, s.position, t.reservation_id, s.unit_price_minor, s.type_id, allotment_id)
        for t in holds
        for s, allotment_id in zip(t.selection.seats, t.allotments or repeat(""), strict=False)
    ]
    tickets = [(t.reservation_id, *line) for t in holds for line in t.selection.ga]
    sections = Counter(seat[0] for seat in seats)
    for _, section_id, quantity, *_ in tickets:
        sections[section_id] += quantity
    for hold in holds:
        for type_id, n in hold.selection.types.items():
            sections[quota_id(type_id)] += n
    reservations = [
        (t.reservation_id, t.holder, t.email, t.lane, t.join_seq, t.selection.total_minor, t.until_ms,
         t.fingerprint, *(t.variant or (None, None)), t.reminders)
        for t in holds
    ]  # fmt: skip
    created = [ReservationEvent("created", t.reservation_id, 1, _event_values(t)) for t in holds]
    columns = [
        *by_column(reservations, 11), *by_column(tickets, 5), *by_column(list(sections.items()), 2),
        *by_column(seats, 6),
    ]  # fmt: skip
    body = orjson.dumps(event_body(event_id, "created", created, actor="fans")).decode()
    with sale_log.timed("sale.statement", statement="inventory:insert_holds", event_id=event_id):
        row = await driver.fetchrow(INSERT_HOLDS, event_id, holds[0].currency, *columns, body)
    if row["redis_epoch"] != epoch:
        raise WriteConflict("stale")
    if row["reservations"] != len(holds):
        raise WriteConflict("exists")
    if (row["sections"], row["seats"]) != (len(sections), len(seats)):
        raise WriteConflict("refused")


def by_column(rows: Sequence[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    """Rows column by column, as the statement takes them."""
    return list(zip(*rows, strict=True)) or [()] * width


def _event_values(hold: HoldInsert) -> dict[str, Any]:
    total_minor = hold.selection.total_minor
    return {"status": "pending_payment", "holder": hold.holder, "total_minor": total_minor, **hold.selection.shown()}


async def redis_epoch(connection: AsyncConnection, event_id: str) -> int:
    """Redis' epoch as PostgreSQL has it."""
    return int(await connection.scalar(REDIS_EPOCH, {"event_id": event_id}) or 0)


Locked = tuple[int, Mapping[str, ReservationRow]]


async def lock_reservations(connection: AsyncConnection, keys: Sequence[Key]) -> Locked:
    """PostgreSQL's clock (ms) under the locks, and the reservations by id with their places, which a second statement
    reads.
    """
    now_ms: int = (await connection.execute(LOCK, _key_columns(keys))).one().now_ms
    return now_ms, await read_reservations(connection, keys)


async def pending_consents(db: AsyncEngine, *, acknowledged: Sequence[str]) -> list[ReminderConsent]:
    """Consents to reminder mail, which come with a hold and are kept until orders, which sends mail, acknowledges them.

    Marks those `acknowledged` (by reservation id), then returns up to `BATCH_MAX` others. Polling is safe to repeat.
    """
    async with db.begin() as connection:
        if acknowledged:
            await connection.execute(ACKNOWLEDGE_CONSENTS, {"ids": list(acknowledged)})
        rows = (await connection.execute(PENDING_CONSENTS, {"count_max": BATCH_MAX})).all()
        emails = {row.reservation_id: row.email for row in rows}
        keys = [(row.event_id, row.reservation_id) for row in rows]
        records = await read_reservations(connection, keys) if keys else {}
    return [ReminderConsent(reservation=records[i].to_contract(), email=email) for i, email in emails.items()]
