"""Writing holds: many in one transaction, locked in key order, each taken only from what is really left.

The second guard against overselling: nothing here believes the gate. A batch that raises or that comes out short is
rolled back and replayed member by member, so that no member fails another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import asyncpg

from services.inventory.basket import Basket
from services.inventory.facts import Fact, event
from services.inventory.layout import Arm
from shared.fence import fenced
from shared.ledger_faults import is_busy, is_gone, outlive_deadlocks
from shared.postgres import AsyncEngine, raw_statement

No = Literal["exists", "refused", "stale"]
BROKEN = (asyncpg.PostgresError, ValueError)
Outcome = Literal["written"] | No | Exception

COMMITTED = "ISOLATION LEVEL READ COMMITTED"  # whatever a pooler makes of our sessions
OPEN = f"BEGIN {COMMITTED}; SELECT pg_advisory_xact_lock_shared(hashtextextended('inventory gate {{event_id}}', 0))"
TAKE = raw_statement(__package__, "take")


@dataclass(frozen=True, slots=True)
class Take:
    """One gated hold, on its way into the ledger."""

    reservation_id: str
    holder: str
    basket: Basket
    currency: str
    until_ms: int
    fingerprint: str
    lane: int = 0
    join_seq: int = 0
    email: str | None = None
    reminders: bool = False
    arm: Arm | None = None


class Short(Exception):
    """Something differs from what was asked: rows that were there, places that were not, a gate of another epoch."""

    def __init__(self, outcome: No) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


async def write(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """One outcome per take; ids must differ. Raises `Unavailable` when nobody knows what was written."""
    try:
        async with fenced(engine, OPEN.format(event_id=event_id)) as driver:
            await take(driver, event_id, epoch, takes)
        return ["written"] * len(takes)
    except Short as short:
        if len(takes) == 1 or short.outcome == "stale":
            return [short.outcome] * len(takes)
    except BROKEN as broken:
        if len(takes) == 1 and not is_busy(broken):
            return [broken]
    return await outlive_deadlocks(lambda: _replay(engine, event_id, epoch, takes))


async def _replay(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """Each under its own savepoint, in the order of their ids."""
    outcomes: dict[str, Outcome] = {}
    async with fenced(engine, OPEN.format(event_id=event_id)) as driver:
        for member in sorted(takes, key=lambda t: t.reservation_id):
            outcomes[member.reservation_id] = await _alone(driver, event_id, epoch, member)
    return [outcomes[member.reservation_id] for member in takes]


async def _alone(driver: Any, event_id: str, epoch: int, member: Take) -> Outcome:
    outcome: Outcome = "written"
    await driver.execute("SAVEPOINT member")
    try:
        await take(driver, event_id, epoch, [member])
    except Short as short:
        outcome = short.outcome
    except BROKEN as broken:
        if is_gone(broken) or is_busy(broken):
            raise
        outcome = broken
    await driver.execute("RELEASE SAVEPOINT member" if outcome == "written" else "ROLLBACK TO SAVEPOINT member")
    return outcome


async def take(driver: Any, event_id: str, epoch: int, takes: Sequence[Take]) -> None:
    """Reservations, then sections, then seats: every writer of the ledger locks in this order. Raises `Short`.

    The fence must have been taken in a statement before this one, which reads the gate's epoch.
    """
    asked = _Asked.of(takes)
    told = event(event_id, "created", [Fact("created", t.reservation_id, 1, _after(t)) for t in takes], actor="fans")
    columns = [*asked.reservations, *asked.tickets, *asked.sections, *asked.seats]
    row = await driver.fetchrow(TAKE, event_id, takes[0].currency, *columns, told)
    if row["gate_epoch"] != epoch:
        raise Short("stale")
    if row["reservations"] != len(takes):
        raise Short("exists")
    if (row["sections"], row["seats"]) != (len(asked.sections[0]), len(asked.seats[0])):
        raise Short("refused")


Columns = list[tuple[Any, ...]]


class _Asked(NamedTuple):
    """What a batch wants, column by column, as the statement takes it."""

    reservations: Columns
    tickets: Columns
    sections: Columns
    seats: Columns

    @classmethod
    def of(cls, takes: Sequence[Take]) -> "_Asked":
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


def _after(take: Take) -> dict[str, Any]:
    return {
        "status": "pending_payment", "holder": take.holder, "total_minor": take.basket.total_minor,
        "seats": [seat_id for _, _, seat_id, _ in take.basket.seats],
        "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in take.basket.ga],
    }  # fmt: skip
