"""The worker pool: processes due orders in the background, and orders inside their own request, both in bounded
numbers.

Workers are woken by jobs, and look for due orders every `sweep_s` without one. A request that finds no inline slot
leaves its order to the workers. Work is never cut off: a slot is busy until its order is done, also when the request
stopped waiting.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from services.orders.order import leases
from services.orders.order.updates import Lease
from services.orders.payments.webhook_inbox import apply_webhooks
from services.orders.processing.processor import OrderProcessor
from services.orders.settings import Settings
from services.orders.tuning import DEFAULTS, Tuning
from shared.concurrency.background import ACTIVITY
from shared.concurrency.leased_queue import SOON_S, LeasedQueue
from shared.http.outgoing import ExternalClient, ExternalResponse
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.runtime.logging import get_logger
from shared.web.load_shedding import LoadShedder

log = get_logger("onsale.orders")
PROVIDER_AWAY_PAUSE_S = 0.5
DB_AWAY_PAUSE_S = 0.5
COUNT_INTERVAL_S = 1.0


class WorkerPool:
    """Leases due orders and processes each."""

    def __init__(
        self, db: AsyncEngine, processor: OrderProcessor, settings: Settings, load: LoadShedder,
        tuning: Tuning = DEFAULTS,
    ) -> None:  # fmt: skip
        self._db, self._processor, self._tuning, self._load = db, processor, tuning, load
        self._count_at_s = 0.0
        self.queue: LeasedQueue[Lease] = LeasedQueue(
            self._fetch, self._process_and_pause, workers_max=settings.workers, poll_s=tuning.sweep_s
        )

    async def _fetch(self, many: int) -> Sequence[Lease]:
        if ACTIVITY.silent:
            if not await leases.any_due_within(self._db, seconds=SOON_S):
                return []
            ACTIVITY.stir()
        await apply_webhooks(self._db)
        leased = await leases.lease_due(
            self._db, many=many, event_max=self._tuning.event_workers_max,
            routine_max=self._tuning.event_routine_max, lease_s=self._tuning.lease_s,
        )  # fmt: skip
        await self._count_waiting(more=len(leased) == many)
        return leased

    async def _count_waiting(self, *, more: bool) -> None:
        """Orders that are due and find no free worker are load as well."""
        if not more:
            self._load.wait(0)
        elif time.monotonic() >= self._count_at_s:
            self._count_at_s = time.monotonic() + COUNT_INTERVAL_S
            waiting, _ = await leases.count_due(self._db)
            self._load.wait(waiting)

    def start(self, lease: Lease) -> asyncio.Task[Any]:
        """Starts to process this order; its lease is extended until that is done."""
        return self.queue.start(lease, self._process(lease))

    async def extend_leases(self) -> None:
        """Extends the leases of all orders in work; called three times in a lease."""
        if self.queue.rows:
            await leases.extend_lease(self._db, self.queue.rows, lease_s=self._tuning.lease_s)

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
                with self._load.work(accepted=lease.is_pending):
                    return await self._processor.process(lease)
            except Exception as failed:
                if not isinstance(failed, DB_AWAY) or clock() > give_up_at_s:
                    log.exception("order.processing_failed", reference=lease.reference)
                    return True
            await asyncio.sleep(DB_AWAY_PAUSE_S)


class LoadOutside:
    """An external client: while it waits for an answer, the order is no load of this process."""

    def __init__(self, client: ExternalClient, load: LoadShedder) -> None:
        self._client, self._load = client, load

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        """As `ExternalClient.request`."""
        with self._load.outside():
            return await self._client.request(method, url, headers=headers, content=content, timeout_s=timeout_s)


class InlineProcessor:
    """The inline slots of this process."""

    def __init__(self, db: AsyncEngine, worker_pool: WorkerPool, tuning: Tuning) -> None:
        self._db, self._worker_pool, self._tuning = db, worker_pool, tuning
        self._free_slots = tuning.inline_slots_max

    def acquire(self, reference: str) -> Lease | None:
        """A slot, as the lease under which to create the order, so that no worker takes it; None if all are busy. Pass
        it to `process` or `release`.
        """
        if self._free_slots <= 0:
            return None
        self._free_slots -= 1
        return Lease(reference, uuid.uuid4().hex, self._tuning.lease_s)

    def release(self, lease: Lease | None) -> None:
        """Frees the slot."""
        if lease is not None:
            self._free_slots += 1

    async def process(self, lease: Lease) -> None:
        """Processes the order and waits for it up to `inline_timeout_s`."""
        task = self._worker_pool.start(lease)
        task.add_done_callback(lambda _: self.release(lease))
        await asyncio.wait([task], timeout=self._tuning.inline_timeout_s)

    async def process_now(self, reference: str) -> None:
        """The same for an existing order, if a slot is free and nobody has leased it."""
        slot = self.acquire(reference)
        if slot is None:
            self._worker_pool.queue.wake()
            return
        lease = None
        try:
            lease = await leases.lease_one(self._db, reference, lease_s=self._tuning.lease_s)
        finally:
            if lease is None:
                self.release(slot)
        if lease is not None:
            await self.process(lease)
