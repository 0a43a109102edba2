"""The worker pool: processes due orders in the background, and orders inside their own request, both in bounded
numbers.

Workers are woken by jobs, and look for due orders every `sweep_s` without one. A request that finds no inline slot
leaves its order to the workers. Work is never cut off: a slot is busy until its order is done, also when the request
stopped waiting.
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
PROVIDER_AWAY_PAUSE_S = 0.5
DB_AWAY_PAUSE_S = 0.5


class WorkerPool:
    """Leases due orders and processes each."""

    def __init__(self, db: AsyncEngine, processor: OrderProcessor, settings: Settings) -> None:
        self._db, self._processor, self._settings = db, processor, settings
        self._woken = asyncio.Event()
        self._running: dict[asyncio.Task[Any], Lease] = {}

    def wake(self) -> None:
        """Looks for due orders now."""
        self._woken.set()

    @property
    def is_busy(self) -> bool:
        """Whether any order is being processed here."""
        return bool(self._running)

    async def run(self) -> None:
        """Runs until cancelled; orders in work are then left to their leases."""
        try:
            while True:
                await self._run_once()
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

    async def _run_once(self) -> None:
        if len(self._running) >= self._settings.workers:
            return  # the first task that ends wakes the pool
        await apply_webhooks(self._db)
        while (free := self._settings.workers - len(self._running)) > 0:
            due = await leases.lease_due(
                self._db, many=free, event_max=self._settings.event_workers_max, lease_s=self._settings.lease_s
            )
            for lease in due:
                self._start_task(self._process_and_pause(lease), lease)
            if len(due) < free:
                return

    def _done(self, task: asyncio.Task[Any]) -> None:
        if len(self._running) >= self._settings.workers:
            self._woken.set()
        self._running.pop(task, None)

    def start(self, lease: Lease) -> asyncio.Task[Any]:
        """Starts to process this order; its lease is extended until that is done."""
        return self._start_task(self._process(lease), lease)

    def _start_task(self, work: Coroutine[Any, Any, object], lease: Lease) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._running[task] = lease
        task.add_done_callback(self._done)
        return task

    async def extend_leases(self) -> None:
        """Extends the leases of all orders in work; called three times in a lease."""
        if self._running:
            await leases.extend_lease(self._db, list(self._running.values()), lease_s=self._settings.lease_s)

    async def _process_and_pause(self, lease: Lease) -> None:
        """While a provider is unreachable, each worker pauses before the next order."""
        if not await self._process(lease):
            await asyncio.sleep(PROVIDER_AWAY_PAUSE_S)

    async def _process(self, lease: Lease) -> bool:
        """False if a provider could not be reached. While the database is unavailable it retries under the same lease,
        so that a waiting request need not wait for the lease to expire.
        """
        clock = asyncio.get_running_loop().time
        give_up_at_s = clock() + lease.seconds
        while True:
            try:
                return await self._processor.process(lease)
            except Exception as failed:
                if not isinstance(failed, DB_AWAY) or clock() > give_up_at_s:
                    log.exception("order.processing_failed", extra=data(reference=lease.reference))
                    return True
            await asyncio.sleep(DB_AWAY_PAUSE_S)


class InlineProcessor:
    """The inline slots of this process."""

    def __init__(self, db: AsyncEngine, worker_pool: WorkerPool, settings: Settings) -> None:
        self._db, self._worker_pool, self._settings = db, worker_pool, settings
        self._free_slots = settings.inline_slots_max

    def acquire(self, reference: str) -> Lease | None:
        """A slot, as the lease under which to create the order, so that no worker takes it; None if all are busy. Pass
        it to `process` or `release`.
        """
        if self._free_slots <= 0:
            return None
        self._free_slots -= 1
        return Lease(reference, uuid.uuid4().hex, self._settings.lease_s)

    def release(self, lease: Lease | None) -> None:
        """Frees the slot."""
        if lease is not None:
            self._free_slots += 1

    async def process(self, lease: Lease) -> None:
        """Processes the order and waits for it up to `inline_timeout_s`."""
        task = self._worker_pool.start(lease)
        task.add_done_callback(lambda _: self.release(lease))
        await asyncio.wait([task], timeout=self._settings.inline_timeout_s)

    async def process_now(self, reference: str) -> None:
        """The same for an existing order, if a slot is free and nobody has leased it."""
        slot = self.acquire(reference)
        if slot is None:
            self._worker_pool.wake()
            return
        lease = None
        try:
            lease = await leases.lease_one(self._db, reference, lease_s=self._settings.lease_s)
        finally:
            if lease is None:
                self.release(slot)
        if lease is not None:
            await self.process(lease)
