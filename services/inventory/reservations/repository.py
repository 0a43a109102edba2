"""Writing holds: many in one transaction, locked in key order, each taken only from what is really left.

The second guard against overselling: nothing here believes the gate. A batch that raises or that comes out short is
rolled back and replayed member by member, so that no member fails another.

A reservation as the ledger has it, read in one go with its places.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import asyncpg
import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.catalogue.layout import Variant
from services.inventory.reservations.events import ReservationEvent, event
from services.inventory.reservations.selection import Selection, selection_text
from shared.contracts.inventory import CustomerLimit, Line, Reservation, ReservationState, StepDone
from shared.postgres.engine import AsyncEngine, raw_statement, statement
from shared.postgres.errors import is_busy, is_gone, outlive_deadlocks
from shared.postgres.fenced_transaction import fenced

READ = statement(__package__, "read_reservations")


@dataclass(slots=True)
class ReservationRow:
    """`seats` are (section_id, position, seat_id, price), `ga` (section_id, quantity, price)."""

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
    given_back: int
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

    def basket(self) -> str:
        """As the gate's scripts read it."""
        return selection_text(((s, p) for s, p, _, _ in self.seats), ((s, q) for s, q, _ in self.ga))

    def places(self) -> dict[str, Any]:
        """For facts and logs."""
        return {
            "seats": [seat_id for _, _, seat_id, _ in self.seats],
            "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in self.ga],
        }

    def to_contract(self) -> Reservation:
        """As neighbours see it."""
        seats = [Line(section_id=s, seat_id=seat_id, unit_price_minor=price) for s, _, seat_id, price in self.seats]
        ga = [Line(section_id=s, quantity=quantity, unit_price_minor=price) for s, quantity, price in self.ga]
        return Reservation(
            event_id=self.event_id, reservation_id=self.reservation_id, holder=self.holder,
            status=self.status, lane=self.lane, join_seq=self.join_seq, total_minor=self.total_minor,
            currency=self.currency, reserved_until_ms=self.reserved_until_ms, grace_s=self.grace_s,
            order_reference=self.order_reference, given_back=self.given_back, lines=seats + ga,
        )  # fmt: skip


@dataclass(slots=True)
class LockedReservation(ReservationRow):
    """A reservation about to be paid: of its places only how many there are."""

    tickets: int = 0

    @property
    def quantity(self) -> int:
        return self.tickets


@dataclass(slots=True)
class Live:
    """A live reservation as the gate needs it: `seats` are (section_id, position), `ga` (section_id, quantity)."""

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

    def basket(self) -> str:
        """As the gate's scripts read it."""
        return selection_text(self.seats, self.ga)


def step_done(record: ReservationRow | None, word: str, *, over: CustomerLimit | None = None) -> StepDone:
    """The answer to one step: its word, and the reservation as it is now."""
    told = (
        {name: getattr(record, name) for name in ("order_reference", "status", "reserved_until_ms")} if record else {}
    )
    return StepDone.model_validate({"word": word, "over": over, **told})


async def read(connection: AsyncConnection, reservation_ids: Sequence[str]) -> dict[str, ReservationRow]:
    """Those that exist, by id."""
    rows = await connection.execute(READ, {"ids": list(reservation_ids)})
    return {row.reservation_id: _record(*row) for row in rows}


def _record(*columns: Any) -> ReservationRow:
    *own, seats, ga = columns
    return ReservationRow(*[*own, _places(seats), _places(ga)])


def _places(found: str | None) -> list[Any]:
    return [tuple(place) for place in orjson.loads(found)] if found else []


ConflictReason = Literal["exists", "refused", "stale"]
BROKEN = (asyncpg.PostgresError, ValueError)
Outcome = Literal["written"] | ConflictReason | Exception

COMMITTED = "ISOLATION LEVEL READ COMMITTED"  # whatever a pooler makes of our sessions
OPEN = f"BEGIN {COMMITTED}; SELECT pg_advisory_xact_lock_shared(hashtextextended('inventory gate {{event_id}}', 0))"
TAKE = raw_statement(__package__, "take")


@dataclass(frozen=True, slots=True)
class HoldInsert:
    """One gated hold, on its way into the ledger."""

    reservation_id: str
    holder: str
    basket: Selection
    currency: str
    until_ms: int
    fingerprint: str
    lane: int = 0
    join_seq: int = 0
    email: str | None = None
    reminders: bool = False
    arm: Variant | None = None


class WriteConflict(Exception):
    """Something differs from what was asked: rows that were there, places that were not, a gate of another epoch."""

    def __init__(self, outcome: ConflictReason) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


async def write(db: AsyncEngine, event_id: str, epoch: int, takes: Sequence[HoldInsert]) -> list[Outcome]:
    """One outcome per take; ids must differ. Raises `Unavailable` when nobody knows what was written."""
    try:
        async with fenced(db, OPEN.format(event_id=event_id)) as driver:
            await insert_holds(driver, event_id, epoch, takes)
        return ["written"] * len(takes)
    except WriteConflict as short:
        if len(takes) == 1 or short.outcome == "stale":
            return [short.outcome] * len(takes)
    except BROKEN as broken:
        if len(takes) == 1 and not is_busy(broken):
            return [broken]
    return await outlive_deadlocks(lambda: _replay(db, event_id, epoch, takes))


async def _replay(db: AsyncEngine, event_id: str, epoch: int, takes: Sequence[HoldInsert]) -> list[Outcome]:
    """Each under its own savepoint, in the order of their ids."""
    outcomes: dict[str, Outcome] = {}
    async with fenced(db, OPEN.format(event_id=event_id)) as driver:
        for member in sorted(takes, key=lambda t: t.reservation_id):
            outcomes[member.reservation_id] = await _alone(driver, event_id, epoch, member)
    return [outcomes[member.reservation_id] for member in takes]


async def _alone(driver: Any, event_id: str, epoch: int, member: HoldInsert) -> Outcome:
    outcome: Outcome = "written"
    await driver.execute("SAVEPOINT member")
    try:
        await insert_holds(driver, event_id, epoch, [member])
    except WriteConflict as short:
        outcome = short.outcome
    except BROKEN as broken:
        if is_gone(broken) or is_busy(broken):
            raise
        outcome = broken
    await driver.execute("RELEASE SAVEPOINT member" if outcome == "written" else "ROLLBACK TO SAVEPOINT member")
    return outcome


async def insert_holds(driver: Any, event_id: str, epoch: int, takes: Sequence[HoldInsert]) -> None:
    """Reservations, then sections, then seats: every writer of the ledger locks in this order. Raises `WriteConflict`.

    The fence must have been taken in a statement before this one, which reads the gate's epoch.
    """
    asked = _Asked.of(takes)
    told = event(
        event_id, "created", [ReservationEvent("created", t.reservation_id, 1, _after(t)) for t in takes], actor="fans"
    )
    columns = [*asked.reservations, *asked.tickets, *asked.sections, *asked.seats]
    row = await driver.fetchrow(TAKE, event_id, takes[0].currency, *columns, told)
    if row["redis_epoch"] != epoch:
        raise WriteConflict("stale")
    if row["reservations"] != len(takes):
        raise WriteConflict("exists")
    if (row["sections"], row["seats"]) != (len(asked.sections[0]), len(asked.seats[0])):
        raise WriteConflict("refused")


Columns = list[tuple[Any, ...]]


class _Asked(NamedTuple):
    """What a batch wants, column by column, as the statement takes it."""

    reservations: Columns
    tickets: Columns
    sections: Columns
    seats: Columns

    @classmethod
    def of(cls, takes: Sequence[HoldInsert]) -> "_Asked":
        seats = [(s, position, t.reservation_id, price) for t in takes for s, position, _, price in t.basket.seats]
        tickets = [(t.reservation_id, *ticket) for t in takes for ticket in t.basket.ga]
        wanted: Counter[str] = Counter(seat[0] for seat in seats)
        for _, section_id, quantity, _ in tickets:
            wanted[section_id] += quantity
        rows = [
            (t.reservation_id, t.holder, t.email, t.lane, t.join_seq, t.basket.total_minor, t.until_ms,
             t.fingerprint, *(t.arm or (None, None)), t.reminders)
            for t in takes
        ]  # fmt: skip
        return cls(_columns(rows, 11), _columns(tickets, 4), _columns(list(wanted.items()), 2), _columns(seats, 4))


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Columns:
    return list(zip(*rows, strict=True)) or [()] * width


def _after(take: HoldInsert) -> dict[str, Any]:
    return {
        "status": "pending_payment", "holder": take.holder, "total_minor": take.basket.total_minor,
        "seats": [seat_id for _, _, seat_id, _ in take.basket.seats],
        "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in take.basket.ga],
    }  # fmt: skip
