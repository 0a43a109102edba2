"""Reading orders, taking those that are due, and nudging one; what is written under a lease is a `Change`."""

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, func, update

from services.orders.order.next_step import Adjustment, Attempt, Charge, Order, OrderLine, Refund, TicketReturn
from services.orders.order.updates import Lease
from services.orders.tables import order
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement

_TAKE = statement(__package__, "take")
_TAKE_ONE = statement(__package__, "take_one")
_RENEW = statement(__package__, "renew")
_LOAD = statement(__package__, "load")
REFERENCES_MAX = 1000
NOW = func.clock_timestamp()


async def lease_due(db: AsyncEngine, *, many: int, event_max: int, lease_s: float) -> list[Lease]:
    """The next due orders, events in turn, now ours for `lease_s`. `engine` commits each statement."""
    owner = uuid.uuid4().hex
    async with db.connect() as connection:
        rows = await connection.execute(
            _TAKE, {"many": many, "event_max": event_max, "lease": owner, "lease_s": lease_s}
        )
        return [Lease(row.reference, owner, lease_s, is_first_call=row.is_first_call) for row in rows]


async def extend_lease(db: AsyncEngine, leases: Sequence[Lease], *, lease_s: float) -> None:
    """These stay ours for `lease_s` from now; one that has passed to somebody else stays theirs."""
    async with db.connect() as connection:
        await connection.execute(
            _RENEW,
            {
                "references": [lease.reference for lease in leases],
                "owners": [lease.owner for lease in leases],
                "lease_s": lease_s,
            },
        )


async def lease_one(db: AsyncEngine, reference: str, *, lease_s: float) -> Lease | None:
    """This order, if it is due and nobody has it. `engine` commits each statement."""
    owner = uuid.uuid4().hex
    async with db.connect() as connection:
        row = (
            await connection.execute(_TAKE_ONE, {"reference": reference, "lease": owner, "lease_s": lease_s})
        ).first()
    return Lease(reference, owner, lease_s) if row else None


async def read(db: AsyncEngine, reference: str) -> Order | None:
    """One order as it is now; nothing for a tombstone."""
    return (await read_many(db, [reference])).get(reference)


async def read_many(db: AsyncEngine, references: Sequence[str]) -> dict[str, Order]:
    """Orders as they are now, by reference."""
    async with db.connect() as connection:
        return await read_in(connection, references)


async def read_in(connection: AsyncConnection, references: Sequence[str]) -> dict[str, Order]:
    """As `read_many`, in the caller's transaction."""
    assert len(references) <= REFERENCES_MAX
    rows = await connection.execute(_LOAD, {"references": list(references)})
    return {row.reference: _order(row) for row in rows}


def _order(row: Row[Any]) -> Order:
    columns = dict(row._mapping)  # noqa: SLF001 - the public name of a row's mapping
    parts = {
        "lines": OrderLine,
        "extras": Adjustment,
        "attempts": Attempt,
        "charges": Charge,
        "refunds": Refund,
        "returns": TicketReturn,
    }
    for name, part in parts.items():
        columns[name] = tuple(part(**each) for each in columns[name])
    return Order(**columns)


async def mark_due(connection: AsyncConnection, reference: str) -> Row[Any]:
    """Makes an order due now, whoever has it, and answers how it stands; its row stays locked for this transaction."""
    nudged = await connection.execute(
        update(order)
        .where(order.c.reference == reference)
        .values(wake_count=order.c.wake_count + 1, due_at=NOW)
        .returning(
            order.c.status,
            order.c.event_id,
            order.c.total_minor,
            order.c.currency,
            order.c.cancel_asked_at.is_not(None).label("cancel_asked"),
        )
    )
    return nudged.one()
