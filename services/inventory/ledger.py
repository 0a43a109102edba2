"""Writing holds: many in one transaction, locked in key order, each taken only from what is really left.

The second guard against overselling: nothing here believes the gate. A batch that raises or that comes out short is
rolled back and replayed member by member, so that no member fails another.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.basket import Basket
from services.inventory.facts import Fact, bodies
from shared.postgres import DBAPIError, statement

No = Literal["exists", "refused", "stale"]
Outcome = Literal["written"] | No | DBAPIError

FENCE = statement(__package__, "fence")
INSERT_RESERVATIONS = statement(__package__, "insert_reservations")
TAKE_SECTIONS = statement(__package__, "take_sections")
TAKE_SEATS = statement(__package__, "take_seats")
RESERVATION = ("ids", "holders", "user_ids", "emails", "lanes", "join_seqs", "totals", "untils", "fingerprints")
TICKET = ("ga_ids", "ga_sections", "ga_quantities", "ga_prices")


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
    """Something differs from what was asked: rows that were there, places that were not, a gate of another epoch."""

    def __init__(self, outcome: No) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


async def write(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """One outcome per take; ids must differ. Raises when the ledger is away; then nobody knows what was written."""
    try:
        async with engine.begin() as connection:
            await connection.execute(FENCE, {"event_id": event_id})
            await take(connection, event_id, epoch, takes)
        return ["written"] * len(takes)
    except Short as short:
        if len(takes) == 1 or short.outcome == "stale":
            return [short.outcome] * len(takes)
    except DBAPIError as broken:
        if broken.connection_invalidated:
            raise
        if len(takes) == 1:
            return [broken]
    return await _replay(engine, event_id, epoch, takes)


async def _replay(engine: AsyncEngine, event_id: str, epoch: int, takes: Sequence[Take]) -> list[Outcome]:
    """Each under its own savepoint, in the order of their ids."""
    outcomes: dict[str, Outcome] = {}
    async with engine.begin() as connection:
        await connection.execute(FENCE, {"event_id": event_id})
        for member in sorted(takes, key=lambda t: t.reservation_id):
            outcomes[member.reservation_id] = await _alone(connection, event_id, epoch, member)
    return [outcomes[member.reservation_id] for member in takes]


async def _alone(connection: AsyncConnection, event_id: str, epoch: int, member: Take) -> Outcome:
    try:
        async with connection.begin_nested():
            await take(connection, event_id, epoch, [member])
    except Short as short:
        return short.outcome
    except DBAPIError as broken:
        if broken.connection_invalidated:
            raise
        return broken
    return "written"


async def take(connection: AsyncConnection, event_id: str, epoch: int, takes: Sequence[Take]) -> None:
    """Reservations, then sections, then seats: every writer of the ledger locks in this order. Raises `Short`.

    The fence must have been taken in a statement before: the first one here reads the gate's epoch, and one statement
    for both would read what was before the lock.
    """
    await _insert(connection, event_id, epoch, takes)
    seats = [(s, position, t.reservation_id, price) for t in takes for s, position, _, price in t.basket.seats]
    wanted: Counter[str] = Counter(seat[0] for seat in seats)
    for section_id, quantity, _ in (ticket for t in takes for ticket in t.basket.ga):
        wanted[section_id] += quantity
    sections = {"event_id": event_id, "section_ids": list(wanted), "quantities": list(wanted.values())}
    _expect(len(wanted), await connection.execute(TAKE_SECTIONS, sections))
    if seats:
        asked = _columns(("section_ids", "positions", "ids", "prices"), seats)
        _expect(len(seats), await connection.execute(TAKE_SEATS, {"event_id": event_id, "mark": "held", **asked}))


async def _insert(connection: AsyncConnection, event_id: str, epoch: int, takes: Sequence[Take]) -> None:
    rows = [
        (t.reservation_id, t.holder, t.user_id, t.email, t.lane, t.join_seq, t.basket.total_minor, t.until_ms,
         t.fingerprint)
        for t in takes
    ]  # fmt: skip
    tickets = [(t.reservation_id, *ticket) for t in takes for ticket in t.basket.ga]
    facts = [Fact("created", t.reservation_id, 1, t.holder, _after(t)) for t in takes]
    values = {
        "event_id": event_id, "currency": takes[0].currency, "bodies": bodies(event_id, facts),
        **_columns(RESERVATION, rows), **_columns(TICKET, tickets),
    }  # fmt: skip
    gate_epoch, written = (await connection.execute(INSERT_RESERVATIONS, values)).one()
    if gate_epoch != epoch:
        raise Short("stale")
    if written != len(takes):
        raise Short("exists")


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _expect(count: int, result: CursorResult[Any]) -> None:
    if result.rowcount != count:
        raise Short("refused")


def _after(take: Take) -> dict[str, Any]:
    return {
        "status": "pending_payment", "holder": take.holder, "total_minor": take.basket.total_minor,
        "seats": [seat_id for _, _, seat_id, _ in take.basket.seats],
        "ga": [{"section_id": s, "quantity": quantity} for s, quantity, _ in take.basket.ga],
    }  # fmt: skip
