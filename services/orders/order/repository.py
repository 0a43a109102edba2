"""The repository of orders: concurrent reads and updates are batched, one statement each.

Each statement is committed by the server as it ends, so nobody waits for a BEGIN or a COMMIT.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self

from services.orders.checkout.idempotency import IdempotencyLookup, IdempotencyRecord, find_records
from services.orders.order import leases, updates
from services.orders.order.next_step import Order
from services.orders.order.updates import OrderUpdate, Written
from services.orders.order.view import publish
from shared.concurrency.group_commit import GroupCommit
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.runtime.clock_offsets import Clocks

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the others


class OrderRepository(AsyncExitStack):
    """Use inside `async with`; leaving it finishes what is queued."""

    def __init__(self, db: AsyncEngine, redis: Redis, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self.db = db.execution_options(isolation_level="AUTOCOMMIT")
        self._redis = redis
        limits = {"batch_max": BATCH_MAX, "waiting_max": WAITING_MAX, "in_flight_max": IN_FLIGHT_MAX}
        self._reads: GroupCommit[str, Order | None] = GroupCommit(self._read, name="orders-read", **limits)
        self._lookups: GroupCommit[IdempotencyLookup, IdempotencyRecord | None] = GroupCommit(
            self._find_keys, name="orders-keys", **limits
        )
        self._updates: GroupCommit[OrderUpdate, Written] = GroupCommit(self._write, name="orders-write", **limits)
        self._frames: GroupCommit[Order, None] = GroupCommit(self._publish, name="orders-show", **limits)

    async def __aenter__(self) -> Self:
        for group in (self._reads, self._lookups, self._updates, self._frames):
            self.push_async_callback(group.close)
        return self

    async def read(self, reference: str) -> Order | None:
        """Reads an order; None for an unknown reference or a tombstone."""
        return await self._reads.submit(reference)

    async def find_idempotency_key(self, lookup: IdempotencyLookup) -> IdempotencyRecord | None:
        """Finds what an idempotency key was used for."""
        return await self._lookups.submit(lookup)

    async def write(self, update: OrderUpdate) -> Written:
        """Writes an update. Raises `LeaseLost` if the order is no longer leased by us in the status that was read."""
        return await self._updates.submit(update)

    async def publish(self, order: Order) -> None:
        """Publishes an order's latest state to its stream; does nothing while Redis is unavailable."""
        await self._frames.submit(order)

    async def _read(self, references: list[str]) -> Sequence[Order | None]:
        found = await leases.read_many(self.db, list(dict.fromkeys(references)))
        return [self._on_slowest_clock(found[reference]) if reference in found else None for reference in references]

    def _on_slowest_clock(self, order: Order) -> Order:
        """Judges a pending order by the slowest clock (PostgreSQL, Redis, this process), so that no hold ends before
        any of them says so.
        """
        slowest_ms = self.clocks.slowest_ms()
        return replace(order, now_ms=slowest_ms) if order.status == "pending" and slowest_ms < order.now_ms else order

    async def _find_keys(self, lookups: list[IdempotencyLookup]) -> Sequence[IdempotencyRecord | None]:
        return await find_records(self.db, lookups)

    async def _write(self, batch: list[OrderUpdate]) -> Sequence[BaseException | Written]:
        return await updates.write(self.db, batch)

    async def _publish(self, orders: list[Order]) -> Sequence[None]:
        await publish(self._redis, orders)
        return [None] * len(orders)
