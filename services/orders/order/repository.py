"""The ledger as many orders use it at once: whoever comes while a statement is on its way shares the next one.

Reads and changes are single statements, committed by the server as they end: nobody waits for a BEGIN or a COMMIT.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self

from services.orders.checkout.idempotency import IdempotencyLookup, IdempotencyRecord, find
from services.orders.order import leases, updates
from services.orders.order.next_step import Order
from services.orders.order.updates import OrderUpdate, Written
from services.orders.order.view import publish
from shared.postgres.engine import AsyncEngine
from shared.redis.client import Redis
from shared.runtime.clock_offsets import Clocks
from shared.runtime.group_commit import GroupCommit

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2  # one that waits for a row does not hold up the others


class OrderRepository(AsyncExitStack):
    """Inside `async with`; leaving it finishes what waits."""

    def __init__(self, db: AsyncEngine, redis: Redis, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self.db = db.execution_options(isolation_level="AUTOCOMMIT")
        self._redis = redis
        limits = {"batch_max": BATCH_MAX, "waiting_max": WAITING_MAX, "in_flight_max": IN_FLIGHT_MAX}
        self._reads: GroupCommit[str, Order | None] = GroupCommit(self._read, name="orders-read", **limits)
        self._keys: GroupCommit[IdempotencyLookup, IdempotencyRecord | None] = GroupCommit(
            self._find, name="orders-keys", **limits
        )
        self._changes: GroupCommit[OrderUpdate, Written] = GroupCommit(self._write, name="orders-write", **limits)
        self._frames: GroupCommit[Order, None] = GroupCommit(self._show, name="orders-show", **limits)

    async def __aenter__(self) -> Self:
        for group in (self._reads, self._keys, self._changes, self._frames):
            self.push_async_callback(group.close)
        return self

    async def read(self, reference: str) -> Order | None:
        """An order as it is now; nothing for a tombstone."""
        return await self._reads.submit(reference)

    async def find_key(self, question: IdempotencyLookup) -> IdempotencyRecord | None:
        """What an idempotency key was used for."""
        return await self._keys.submit(question)

    async def write(self, change: OrderUpdate) -> Written:
        """Raises `LeaseLost` if the order is not ours in the state we saw."""
        return await self._changes.submit(change)

    async def show(self, order: Order) -> None:
        """Publishes an order's latest state; nothing comes of it if the engine is away."""
        await self._frames.submit(order)

    async def _read(self, references: list[str]) -> Sequence[Order | None]:
        found = await leases.read_many(self.db, list(dict.fromkeys(references)))
        return [self._promised(found[reference]) if reference in found else None for reference in references]

    def _promised(self, order: Order) -> Order:
        """A pending order lasts as long as any clock says so: the ledger's, the engine's or ours."""
        slowest_ms = self.clocks.slowest_ms()
        return replace(order, now_ms=slowest_ms) if order.status == "pending" and slowest_ms < order.now_ms else order

    async def _find(self, questions: list[IdempotencyLookup]) -> Sequence[IdempotencyRecord | None]:
        return await find(self.db, questions)

    async def _write(self, batch: list[OrderUpdate]) -> Sequence[BaseException | Written]:
        return await updates.write(self.db, batch)

    async def _show(self, orders: list[Order]) -> Sequence[None]:
        await publish(self._redis, orders)
        return [None] * len(orders)
