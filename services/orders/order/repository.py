"""The repository of orders: concurrent reads and updates are batched, one statement each.

Each statement is committed by the server as it ends, so nobody waits for a BEGIN or a COMMIT.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from services.orders.checkout.idempotency import IdempotencyLookup, IdempotencyRecord, find_records
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate, Written, write
from services.orders.order.view import publish
from shared.concurrency.group_commit import GroupCommits
from shared.postgres.engine import AsyncEngine
from shared.process.clock_offsets import Clocks
from shared.redis.client import Redis

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the others


class OrderRepository(GroupCommits):
    """Use inside `async with`; leaving it finishes what is queued."""

    def __init__(self, db: AsyncEngine, redis: Redis, clocks: Clocks) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self.clocks = clocks
        self.db = db.execution_options(isolation_level="AUTOCOMMIT")
        # Reads an order; None for an unknown reference or a tombstone.
        self.read: Callable[[str], Awaitable[Order | None]] = self.grouped("orders-read", self._read, rests=True)
        # Finds what an idempotency key was used for.
        self.find_idempotency_key: Callable[[IdempotencyLookup], Awaitable[IdempotencyRecord | None]]
        self.find_idempotency_key = self.grouped("orders-keys", partial(find_records, self.db))
        # Writes an update. Raises `LeaseLost` if the order is no longer leased by us in the status that was read.
        self.write: Callable[[OrderUpdate], Awaitable[Written]] = self.grouped(
            "orders-write", partial(write, self.db), rests=True
        )
        # Publishes an order's latest state to its stream; does nothing while Redis is unavailable.
        self.publish: Callable[[Order], Awaitable[None]] = self.grouped(
            "orders-show", partial(publish, redis), rests=True
        )

    async def read_leased(self, lease: Lease) -> Order:
        """The order of this lease. Raises `LeaseLost` if it is none any more."""
        order = await self.read(lease.reference)
        if order is None:
            raise LeaseLost(lease.reference)
        return order

    async def _read(self, references: list[str]) -> Sequence[Order | None]:
        found = await leases.read_many(self.db, list(dict.fromkeys(references)))
        return [self._on_slowest_clock(found[reference]) if reference in found else None for reference in references]

    def _on_slowest_clock(self, order: Order) -> Order:
        """Judges a pending order by the slowest clock (PostgreSQL, Redis, this process), so that no hold ends before
        any of them says so.
        """
        slowest_ms = self.clocks.slowest_ms()
        return replace(order, now_ms=slowest_ms) if order.status == "pending" and slowest_ms < order.now_ms else order
