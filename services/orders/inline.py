"""Requests that settle their own order: with the background's own cashier, a bounded number at once.

Whoever finds no slot leaves the order to the workers. A slot lasts as long as the work, also when whoever asked has
stopped waiting for it; the work is never cut off.
"""

import asyncio
import uuid

from services.orders import ledger
from services.orders.changes import Lease
from services.orders.settings import Settings
from services.orders.workers import Workers
from shared.postgres import AsyncEngine


class Inline:
    """The slots of this process."""

    def __init__(self, engine: AsyncEngine, workers: Workers, settings: Settings) -> None:
        self._engine, self._workers, self._settings = engine, workers, settings
        self._free = settings.inline_max

    def claim(self, reference: str) -> Lease | None:
        """A slot, and the lease under which to make the order, so that no worker takes it. `settle` or `drop` it."""
        if self._free <= 0:
            return None
        self._free -= 1
        return Lease(reference, uuid.uuid4().hex, self._settings.lease_s)

    def drop(self, lease: Lease | None) -> None:
        """Nothing came of it."""
        if lease is not None:
            self._free += 1

    async def settle(self, lease: Lease) -> None:
        """Does what is due for this order, and waits for it a bounded time."""
        task = self._workers.start(lease)
        task.add_done_callback(lambda _: self.drop(lease))
        await asyncio.wait([task], timeout=self._settings.inline_wait_s)

    async def settle_now(self, reference: str) -> None:
        """The same for an order that is there already, if there is a slot and nobody has it in hand."""
        slot = self.claim(reference)
        if slot is None:
            self._workers.wake()
            return
        lease = None
        try:
            lease = await ledger.take_one(self._engine, reference, lease_s=self._settings.lease_s)
        finally:
            if lease is None:
                self.drop(slot)
        if lease is not None:
            await self.settle(lease)
