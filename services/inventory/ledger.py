"""Writing holds: many in one transaction, locked in key order, each taken only from what is really left.

The second guard against overselling: nothing here believes the gate. A batch that raises or that comes out short is
rolled back and replayed member by member, so that no member fails another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.basket import Basket
from services.inventory.facts import Fact, tell
from shared.postgres import DBAPIError, statement

Outcome = Literal["written", "exists", "refused", "stale"] | DBAPIError

FENCE = statement(__package__, "fence")
GATE_EPOCH = text("SELECT gate_epoch FROM inventory.event WHERE event_id = :event_id")
INSERT_RESERVATIONS = statement(__package__, "insert_reservations")
TAKE_SECTIONS = statement(__package__, "take_sections")
TAKE_SEATS = statement(__package__, "take_seats")
INSERT_GA = statement(__package__, "insert_ga")


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
    user_id: str | None = None
    email: str | None = None


class Short(Exception):
    """A row count differs from what was asked: `exists` or `refused`."""

    def __init__(self, outcome: Literal["exists", "refused"]) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


async def write(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """One outcome per take; ids must differ. Raises when the ledger is away; then nobody knows what was written."""
    try:
        async with engine.begin() as connection:
            if not await _is_current(connection, event_id, epoch):
                return ["stale"] * len(takes)
            await take(connection, event_id, takes)
        return ["written"] * len(takes)
    except Short as short:
        return [short.outcome] if len(takes) == 1 else await _replay(engine, event_id, epoch, takes)
    except DBAPIError as broken:
        if broken.connection_invalidated:
            raise
        return [broken] if len(takes) == 1 else await _replay(engine, event_id, epoch, takes)


async def _replay(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """Each under its own savepoint, in the order of their ids."""
    outcomes: dict[str, Outcome] = {}
    async with engine.begin() as connection:
        if not await _is_current(connection, event_id, epoch):
            return ["stale"] * len(takes)
        for member in sorted(takes, key=lambda t: t.reservation_id):
            outcomes[member.reservation_id] = await _alone(connection, event_id, member)
    return [outcomes[member.reservation_id] for member in takes]


async def _alone(connection: AsyncConnection, event_id: str, member: Take) -> Outcome:
    try:
        async with connection.begin_nested():
            await take(connection, event_id, [member])
    except Short as short:
        return short.outcome
    except DBAPIError as broken:
        if broken.connection_invalidated:
            raise
        return broken
    return "written"


async def _is_current(connection: AsyncConnection, event_id: str, epoch: int) -> bool:
    """The lock first, then the epoch in a second statement: one statement would read what was before the lock."""
    await connection.execute(FENCE, {"event_id": event_id})
    return (await connection.execute(GATE_EPOCH, {"event_id": event_id})).scalar() == epoch


async def take(connection: AsyncConnection, event_id: str, takes: Sequence[Take]) -> None:
    """Reservations, then sections, then seats: every writer of the ledger locks in this order. Raises `Short`."""
    await _insert(connection, event_id, takes)
    seats = [(s, position, t.reservation_id, price) for t in takes for s, position, _, price in t.basket.seats]
    tickets = [(t.reservation_id, *ticket) for t in takes for ticket in t.basket.ga]
    wanted: Counter[str] = Counter(seat[0] for seat in seats)
    for _, section_id, quantity, _ in tickets:
        wanted[section_id] += quantity
    sections = {"event_id": event_id, "section_ids": list(wanted), "quantities": list(wanted.values())}
    _expect(len(wanted), await connection.execute(TAKE_SECTIONS, sections), "refused")
    if seats:
        names = ("section_ids", "positions", "ids", "prices")
        asked = {"event_id": event_id, "mark": "held", **_columns(names, seats)}
        _expect(len(seats), await connection.execute(TAKE_SEATS, asked), "refused")
    if tickets:
        names = ("ids", "section_ids", "quantities", "prices")
        await connection.execute(INSERT_GA, {"event_id": event_id, **_columns(names, tickets)})
    await tell(connection, event_id, [Fact("created", t.reservation_id, 1, t.holder, _after(t)) for t in takes])


async def _insert(connection: AsyncConnection, event_id: str, takes: Sequence[Take]) -> None:
    columns = ("ids", "holders", "user_ids", "emails", "lanes", "join_seqs", "totals", "untils", "fingerprints")
    rows = [
        (t.reservation_id, t.holder, t.user_id, t.email, t.lane, t.join_seq, t.basket.total_minor, t.until_ms,
         t.fingerprint)
        for t in takes
    ]  # fmt: skip
    values = {"event_id": event_id, "currency": takes[0].currency, **_columns(columns, rows)}
    _expect(len(takes), await connection.execute(INSERT_RESERVATIONS, values), "exists")


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _expect(count: int, result: CursorResult[Any], otherwise: Literal["exists", "refused"]) -> None:
    if result.rowcount != count:
        raise Short(otherwise)


def _after(take: Take) -> dict[str, Any]:
    return {
        "status": "pending_payment", "holder": take.holder, "total_minor": take.basket.total_minor,
        "seats": [seat_id for _, _, seat_id, _ in take.basket.seats],
        "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in take.basket.ga],
    }  # fmt: skip
