"""Who settles orders in the background: a bounded number at once, woken by jobs, and every second without one.

Requests that settle their own order: with the background's own cashier, a bounded number at once.

Whoever finds no slot leaves the order to the workers. A slot lasts as long as the work, also when whoever asked has
stopped waiting for it; the work is never cut off.
"""

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from typing import Any

from services.orders.order import leases
from services.orders.order.updates import Lease
from services.orders.payments.webhook_inbox import apply_webhooks
from services.orders.processing.processor import OrderProcessor
from services.orders.settings import Settings
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.runtime.logging import data

log = logging.getLogger("onsale.orders")
NO_ANSWER_PAUSE_S = 0.5
AWAY_S = 0.5


class WorkerPool:
    """Takes due orders from the rows and hands each to the cashier."""

    def __init__(self, db: AsyncEngine, cashier: OrderProcessor, settings: Settings) -> None:
        self._db, self._cashier, self._settings = db, cashier, settings
        self._woken = asyncio.Event()
        self._running: dict[asyncio.Task[Any], Lease] = {}

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    @property
    def busy(self) -> bool:
        """Whether any order is in work here."""
        return bool(self._running)

    async def run(self) -> None:
        """Works until cancelled; orders in work are then left to their leases."""
        try:
            while True:
                await self._turn()
                try:
                    async with asyncio.timeout(self._settings.sweep_s):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                self._woken.clear()
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _turn(self) -> None:
        if len(self._running) >= self._settings.workers:
            return  # the first that is done wakes us
        await apply_webhooks(self._db)
        while (free := self._settings.workers - len(self._running)) > 0:
            due = await leases.lease_due(
                self._db, many=free, event_max=self._settings.event_workers_max, lease_s=self._settings.lease_s
            )
            for lease in due:
                self._keep(self._in_background(lease), lease)
            if len(due) < free:
                return

    def _done(self, task: asyncio.Task[Any]) -> None:
        if len(self._running) >= self._settings.workers:
            self._woken.set()
        self._running.pop(task, None)

    def start(self, lease: Lease) -> asyncio.Task[Any]:
        """Settles this order beside the others; its lease is kept until that is over."""
        return self._keep(self._settle(lease), lease)

    def _keep(self, work: Coroutine[Any, Any, object], lease: Lease) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._running[task] = lease
        task.add_done_callback(self._done)
        return task

    async def renew(self) -> None:
        """Keeps the leases of what is in work here, three times before they would run out."""
        if self._running:
            await leases.extend_lease(self._db, list(self._running.values()), lease_s=self._settings.lease_s)

    async def _in_background(self, lease: Lease) -> None:
        """While a provider does not answer, each worker asks it for the next order only after a pause."""
        if not await self._settle(lease):
            await asyncio.sleep(NO_ANSWER_PAUSE_S)

    async def _settle(self, lease: Lease) -> bool:
        """Whether every provider that was asked has answered. While the ledger is away the lease stays ours: whoever
        waits for this order should not wait for its end.
        """
        clock = asyncio.get_running_loop().time
        give_up_at_s = clock() + lease.seconds
        while True:
            try:
                return await self._cashier.process(lease)
            except Exception as failed:
                if not isinstance(failed, DB_AWAY) or clock() > give_up_at_s:
                    log.exception("order.settle_failed", extra=data(reference=lease.reference))
                    return True
            await asyncio.sleep(AWAY_S)


class InlineProcessor:
    """The slots of this process."""

    def __init__(self, db: AsyncEngine, workers: WorkerPool, settings: Settings) -> None:
        self._db, self._workers, self._settings = db, workers, settings
        self._free = settings.inline_slots_max

    def acquire(self, reference: str) -> Lease | None:
        """A slot, and the lease under which to make the order, so that no worker takes it. `settle` or `drop` it."""
        if self._free <= 0:
            return None
        self._free -= 1
        return Lease(reference, uuid.uuid4().hex, self._settings.lease_s)

    def release(self, lease: Lease | None) -> None:
        """Nothing came of it."""
        if lease is not None:
            self._free += 1

    async def process(self, lease: Lease) -> None:
        """Does what is due for this order, and waits for it a bounded time."""
        task = self._workers.start(lease)
        task.add_done_callback(lambda _: self.release(lease))
        await asyncio.wait([task], timeout=self._settings.inline_timeout_s)

    async def process_now(self, reference: str) -> None:
        """The same for an order that is there already, if there is a slot and nobody has it in hand."""
        slot = self.acquire(reference)
        if slot is None:
            self._workers.wake()
            return
        lease = None
        try:
            lease = await leases.lease_one(self._db, reference, lease_s=self._settings.lease_s)
        finally:
            if lease is None:
                self.release(slot)
        if lease is not None:
            await self.process(lease)
