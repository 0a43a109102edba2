"""Sends what is owed to organisers: a bounded number at once, endpoints in turn, each no more than it can take.

A delivery is leased while it is on its way. Whoever dies with one leaves it to others; then it may arrive twice, and
its id tells the receiver.
"""

import asyncio
import logging
import random
import uuid

from sqlalchemy import text

from services.orders.metrics import HOOKS
from services.orders.settings import Settings
from services.orders.webhooks.sender import Delivery, DeliveryResult, Sender, pause_s
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import data

log = logging.getLogger("onsale.orders")
_TAKE = statement(__package__, "take_deliveries")
_FINISH = statement(__package__, "finish_delivery")
_FORGET = statement(__package__, "forget_deliveries")
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('orders hooks', 0))")
KEPT_DAYS = 30
LEASE_SPARE_S = 30.0


class WebhookDispatcher:
    """Those of this process."""

    def __init__(self, db: AsyncEngine, sender: Sender, settings: Settings) -> None:
        self._db, self._sender, self._settings = db, sender, settings
        self._woken = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """There may be something to send."""
        self._woken.set()

    async def run(self) -> None:
        """Works until cancelled; what is on its way is then left to its lease."""
        try:
            while True:
                self._woken.clear()
                for delivery in await self._take():
                    task = asyncio.create_task(self._deliver(delivery))
                    self._running.add(task)
                    task.add_done_callback(self._done)
                try:
                    async with asyncio.timeout(self._settings.webhook_poll_interval_s):
                        await self._woken.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.wake()

    async def _take(self) -> list[Delivery]:
        """One process takes at a time, or two would both find room at the same endpoint."""
        free = self._settings.webhook_workers - len(self._running)
        if free <= 0:
            return []
        wanted = {
            "many": free, "each_max": self._settings.webhook_endpoint_concurrency, "lease": uuid.uuid4().hex,
            "lease_s": self._settings.webhook_timeout_s + LEASE_SPARE_S,
        }  # fmt: skip
        async with self._db.begin() as connection:
            if not await connection.scalar(_ALONE):
                return []
            return [Delivery(**row) for row in (await connection.execute(_TAKE, wanted)).mappings()]

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            sent = await self._sender.send(delivery)
            await self._finish(delivery, sent)
        except Exception:
            log.exception("hook.failed", extra=data(hook=delivery.hook_id, delivery=delivery.id))

    async def _finish(self, delivery: Delivery, sent: DeliveryResult) -> None:
        pause = pause_s(self._settings.webhook_backoff_s, delivery.attempts + 1, random.random())  # noqa: S311 - jitter
        told = {
            "id": delivery.id, "lease": delivery.lease, "delivered": sent.delivered, "gone": sent.gone,
            "pause_s": None if sent.delivered or sent.gone else pause, "answer_status": sent.status,
            "error": sent.error, "disable_after_s": self._settings.webhook_disable_after_s,
        }  # fmt: skip
        async with self._db.begin() as connection:
            disabled = await connection.scalar(_FINISH, told)
        HOOKS.labels("delivered" if sent.delivered else "failed").inc()
        if not sent.delivered:
            fields = data(hook=delivery.hook_id, delivery=delivery.id, error=sent.error, disabled=bool(disabled))
            log.warning("hook.not_delivered", extra=fields)

    async def forget(self) -> int:
        """Deletes what is old, some at a time; how many."""
        async with self._db.begin() as connection:
            return (await connection.execute(_FORGET, {"keep_days": KEPT_DAYS})).rowcount
