"""Reservations in PostgreSQL: insert holds in batches, read reservations with their places, lock them for a payment.

The second guard against overselling: it never trusts Redis. Places are locked in key order and taken only from what is
left. A batch that fails is rolled back and replayed hold by hold, so that no hold makes another fail.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import asyncpg
import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.catalogue.layout import Variant
from services.inventory.reservations.events import ReservationEvent, event_body
from services.inventory.reservations.selection import Selection, selection_text
from shared.contracts.inventory import CustomerLimit, Reservation, ReservationState, ReservedItem, StepDone
from shared.postgres.engine import AsyncEngine, raw_statement, statement
from shared.postgres.errors import is_busy, is_gone, retry_deadlocks
from shared.postgres.fenced_transaction import fenced

READ = statement(__package__, "read_reservations")
LOCK = statement(__package__, "lock_reservations")
LOCK_FOR_PAYMENT = statement(__package__, "lock_for_payment")


@dataclass(slots=True)
class ReservationRow:
    """A reservation. `seats` are (section_id, position, seat_id, price), `ga` are (section_id, quantity, price)."""

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
    seats: list[tuple[str, int, str, int]] = field(default_factory=list)
    ga: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(quantity for _, quantity, _ in self.ga)

    @property
    def is_live(self) -> bool:
        return self.status in ("pending_payment", "paying")

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000

    def selection_text(self) -> str:
        """Its places as text for Redis' scripts."""
        return selection_text(((s, p) for s, p, _, _ in self.seats), ((s, q) for s, q, _ in self.ga))

    def places(self) -> dict[str, Any]:
        """Its places for events."""
        return {
            "seats": [seat_id for _, _, seat_id, _ in self.seats],
            "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in self.ga],
        }

    def to_contract(self) -> Reservation:
        """As the other services see it."""
        seats = [
            ReservedItem(section_id=s, seat_id=seat_id, unit_price_minor=price) for s, _, seat_id, price in self.seats
        ]
        ga = [ReservedItem(section_id=s, quantity=quantity, unit_price_minor=price) for s, quantity, price in self.ga]
        return Reservation(
            event_id=self.event_id, reservation_id=self.reservation_id, holder=self.holder,
            status=self.status, lane=self.lane, join_seq=self.join_seq, total_minor=self.total_minor,
            currency=self.currency, reserved_until_ms=self.reserved_until_ms, grace_s=self.grace_s,
            order_reference=self.order_reference, released_tickets=self.released_tickets, lines=seats + ga,
        )  # fmt: skip


@dataclass(slots=True)
class LockedReservation(ReservationRow):
    """A reservation locked for payment; of its places only their number was read."""

    tickets: int = 0

    @property
    def quantity(self) -> int:
        return self.tickets


@dataclass(slots=True)
class LiveHold:
    """A live reservation as Redis needs it: `seats` are (section_id, position), `ga` (section_id, quantity)."""

    reservation_id: str
    holder: str
    status: ReservationState
    reserved_until_ms: int
    fingerprint: str
    grace_s: int
    seats: list[tuple[str, int]] = field(default_factory=list)
    ga: list[tuple[str, int]] = field(default_factory=list)

    @property
    def quantity(self) -> int:
        return len(self.seats) + sum(quantity for _, quantity in self.ga)

    @property
    def release_at_ms(self) -> int:
        return self.reserved_until_ms + self.grace_s * 1000

    def selection_text(self) -> str:
        """Its places as text for Redis' scripts."""
        return selection_text(self.seats, self.ga)


def step_done(record: ReservationRow | None, outcome: str, *, over: CustomerLimit | None = None) -> StepDone:
    """The result of one step, with the reservation as it is now."""
    state = (
        {name: getattr(record, name) for name in ("order_reference", "status", "reserved_until_ms")} if record else {}
    )
    return StepDone.model_validate({"outcome": outcome, "over": over, **state})


async def read_reservations(connection: AsyncConnection, reservation_ids: Sequence[str]) -> dict[str, ReservationRow]:
    """Existing reservations by id."""
    rows = await connection.execute(READ, {"ids": list(reservation_ids)})
    return {row.reservation_id: _row(*row) for row in rows}


def _row(*columns: Any) -> ReservationRow:
    *own, seats, ga = columns
    return ReservationRow(*[*own, _places(seats), _places(ga)])


def _places(found: str | None) -> list[Any]:
    return [tuple(place) for place in orjson.loads(found)] if found else []


ConflictReason = Literal["exists", "refused", "stale"]
DB_ERRORS = (asyncpg.PostgresError, ValueError)
WriteOutcome = Literal["written"] | ConflictReason | Exception

COMMITTED = "ISOLATION LEVEL READ COMMITTED"  # also if a connection pooler changed the session's default
BEGIN_FENCED = (
    f"BEGIN {COMMITTED}; SELECT pg_advisory_xact_lock_shared(hashtextextended('inventory stock {{event_id}}', 0))"
)
INSERT_HOLDS = raw_statement(__package__, "insert_holds")


@dataclass(frozen=True, slots=True)
class HoldInsert:
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
    columns = _HoldColumns.of(holds)
    created = event_body(
        event_id,
        "created",
        [ReservationEvent("created", t.reservation_id, 1, _event_values(t)) for t in holds],
        actor="fans",
    )
    flat = [*columns.reservations, *columns.tickets, *columns.sections, *columns.seats]
    row = await driver.fetchrow(INSERT_HOLDS, event_id, holds[0].currency, *flat, created)
    if row["redis_epoch"] != epoch:
        raise WriteConflict("stale")
    if row["reservations"] != len(holds):
        raise WriteConflict("exists")
    if (row["sections"], row["seats"]) != (len(columns.sections[0]), len(columns.seats[0])):
        raise WriteConflict("refused")


Columns = list[tuple[Any, ...]]


class _HoldColumns(NamedTuple):
    """A batch column by column, as the statement takes it."""

    reservations: Columns
    tickets: Columns
    sections: Columns
    seats: Columns

    @classmethod
    def of(cls, holds: Sequence[HoldInsert]) -> "_HoldColumns":
        seats = [(s, position, t.reservation_id, price) for t in holds for s, position, _, price in t.selection.seats]
        tickets = [(t.reservation_id, *ticket) for t in holds for ticket in t.selection.ga]
        wanted: Counter[str] = Counter(seat[0] for seat in seats)
        for _, section_id, quantity, _ in tickets:
            wanted[section_id] += quantity
        rows = [
            (t.reservation_id, t.holder, t.email, t.lane, t.join_seq, t.selection.total_minor, t.until_ms,
             t.fingerprint, *(t.variant or (None, None)), t.reminders)
            for t in holds
        ]  # fmt: skip
        return cls(_columns(rows, 11), _columns(tickets, 4), _columns(list(wanted.items()), 2), _columns(seats, 4))


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Columns:
    return list(zip(*rows, strict=True)) or [()] * width


def _event_values(hold: HoldInsert) -> dict[str, Any]:
    return {
        "status": "pending_payment", "holder": hold.holder, "total_minor": hold.selection.total_minor,
        "seats": [seat_id for _, _, seat_id, _ in hold.selection.seats],
        "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in hold.selection.ga],
    }  # fmt: skip


LockArguments = dict[str, list[Any]]
Lock = Callable[[AsyncConnection, LockArguments], Awaitable[tuple[int, Mapping[str, ReservationRow]]]]


async def lock_reservations(
    connection: AsyncConnection, arguments: LockArguments
) -> tuple[int, Mapping[str, ReservationRow]]:
    """PostgreSQL's clock (ms) under the locks, and the reservations by id with their places, which a second statement
    reads.
    """
    now_ms: int = (await connection.execute(LOCK, {"ids": arguments["ids"]})).one().now_ms
    return now_ms, await read_reservations(connection, arguments["ids"])


async def lock_for_payment(
    connection: AsyncConnection, arguments: LockArguments
) -> tuple[int, Mapping[str, ReservationRow]]:
    """Locks the customers, too; of the places only their number is read. It may be from before a partial release that
    this waited for: then `released_tickets` differs from what orders saw.
    """
    rows = (await connection.execute(LOCK_FOR_PAYMENT, arguments)).all()
    locked = (LockedReservation(*[*own, [], [], int(quantity)]) for _, _, *own, quantity in rows if own[0] is not None)
    return rows[0].now_ms, {row.reservation_id: row for row in locked}
