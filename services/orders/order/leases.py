"""Reads orders, leases those that are due, and wakes one. The owner of a lease writes an `OrderUpdate`."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, func, text, update

from services.orders.order.next_step import Adjustment, Attempt, Charge, Order, OrderLine, Refund, TicketReturn
from services.orders.order.updates import Lease
from services.orders.tables import order
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement

_LEASE_DUE = statement(__package__, "lease_due")
_LEASE_ONE = statement(__package__, "lease_one")
_EXTEND_LEASE = statement(__package__, "extend_lease")
_COUNT_DUE = statement(__package__, "count_due")
_READ_ORDERS = statement(__package__, "read_orders")
_ANY_SOON = text(
    'SELECT EXISTS (SELECT FROM orders."order" WHERE due_at <= now() + make_interval(secs => :seconds)) OR EXISTS '
    "(SELECT FROM orders.webhook_inbox WHERE applied_at IS NULL AND due_at <= now() + make_interval(secs => :seconds))"
)
REFERENCES_MAX = 1000
NOW = func.clock_timestamp()
WAKE: Final = {"wake_count": order.c.wake_count + 1, "due_at": NOW, "routine": False}
_PARTS: Final = (
    ("lines", OrderLine), ("extras", Adjustment), ("attempts", Attempt), ("charges", Charge), ("refunds", Refund),
    ("returns", TicketReturn),
)  # fmt: skip


async def any_due_within(db: AsyncEngine, *, seconds: float) -> bool:
    """Whether an order, or a stored webhook about one, is due or becomes due so soon."""
    async with db.connect() as connection:
        return bool(await connection.scalar(_ANY_SOON, {"seconds": seconds}))


async def lease_due(db: AsyncEngine, *, many: int, event_max: int, routine_max: int, lease_s: float) -> list[Lease]:
    """Leases the next due orders for `lease_s`; events alternate, and orders for which nobody waits come last. `db`
    commits each statement.
    """
    owner = uuid.uuid4().hex
    async with db.connect() as connection:
        limits = {"many": many, "event_max": event_max, "routine_max": routine_max}
        rows = await connection.execute(_LEASE_DUE, {**limits, "lease": owner, "lease_s": lease_s})
        return [Lease(row.reference, owner, lease_s, row.is_first_call, row.is_pending) for row in rows]


async def count_due(db: AsyncEngine) -> tuple[int, float]:
    """How many due orders no worker has while somebody waits for them, at most 10,000 of an event, and for how many
    seconds one has been due.
    """
    async with db.connect() as connection:
        count, oldest_s = (await connection.execute(_COUNT_DUE)).one()
    return int(count), float(oldest_s)


async def extend_lease(db: AsyncEngine, leases: Sequence[Lease], *, lease_s: float) -> None:
    """Extends these leases to `lease_s` from now; leases that were lost stay lost."""
    references, owners = [lease.reference for lease in leases], [lease.owner for lease in leases]
    async with db.connect() as connection:
        await connection.execute(_EXTEND_LEASE, {"references": references, "owners": owners, "lease_s": lease_s})


async def lease_one(db: AsyncEngine, reference: str, *, lease_s: float) -> Lease | None:
    """Leases this order if it is due and not leased. `db` commits each statement."""
    owner = uuid.uuid4().hex
    async with db.connect() as connection:
        leased = await connection.scalar(_LEASE_ONE, {"reference": reference, "lease": owner, "lease_s": lease_s})
    return Lease(reference, owner, lease_s) if leased else None


async def read_many(db: AsyncEngine, references: Sequence[str]) -> dict[str, Order]:
    """Reads orders, by reference; unknown references and tombstones are left out."""
    async with db.connect() as connection:
        return await read_in(connection, references)


async def read_in(connection: AsyncConnection, references: Sequence[str]) -> dict[str, Order]:
    """As `read_many`, in the caller's transaction."""
    assert len(references) <= REFERENCES_MAX
    rows = (await connection.execute(_READ_ORDERS, {"references": list(references)})).mappings()
    return {
        row["reference"]: Order(**{**row, **{name: tuple(part(**each) for each in row[name]) for name, part in _PARTS}})
        for row in rows
    }


async def mark_due(connection: AsyncConnection, reference: str) -> Row[Any]:
    """Makes an order due now, leased or not, and returns its state. Its row stays locked for this transaction."""
    woken = await connection.execute(
        update(order)
        .where(order.c.reference == reference)
        .values(WAKE)
        .returning(
            order.c.status, order.c.total_minor, order.c.currency,
            order.c.cancel_requested_at.is_not(None).label("cancel_requested"),
        )
    )  # fmt: skip
    return woken.one()
