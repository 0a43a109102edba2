"""Webhook dispatcher: leases due deliveries, sends them, and schedules retries.

Delivery is at least once. Endpoints take turns, and one endpoint has a bounded number of deliveries in flight over all
processes. A process that dies leaves its deliveries to others when their leases end; one may then arrive twice, and the
receiver knows it by its `webhook-id`.
"""

import random
import uuid

from sqlalchemy import text

from services.orders.metrics import WEBHOOK_DELIVERIES
from services.orders.settings import Settings
from services.orders.tuning import Tuning
from services.orders.webhooks.sender import Delivery, DeliveryResult, Sender, retry_delay_s
from shared.concurrency.background import ACTIVITY
from shared.concurrency.leased_queue import SOON_S, LeasedQueue
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
_LEASE = statement(__package__, "lease_deliveries")
_FINISH = statement(__package__, "finish_delivery")
_DELETE_OLD = statement(__package__, "delete_old_deliveries")
_ANY_SOON = text(
    "SELECT EXISTS (SELECT FROM orders.webhook_delivery d JOIN orders.webhook_endpoint h USING (endpoint_id) "
    "WHERE h.disabled_at IS NULL AND d.due_at <= now() + make_interval(secs => :soon_s))"
)
_EXCLUSIVE_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('orders webhooks', 0))")
KEPT_DAYS = 30
LEASE_SPARE_S = 30.0


class WebhookDispatcher:
    """The deliveries of this process: at most `webhook_workers` in flight."""

    def __init__(self, db: AsyncEngine, sender: Sender, settings: Settings, tuning: Tuning) -> None:
        self._db, self._sender, self._settings, self._tuning = db, sender, settings, tuning
        self._single_reads = db.execution_options(isolation_level="AUTOCOMMIT")  # the question of an idle dispatcher
        self.queue: LeasedQueue[Delivery] = LeasedQueue(
            self._fetch, self._deliver, workers_max=settings.webhook_workers, poll_s=tuning.webhook_poll_interval_s
        )

    async def _fetch(self, many: int) -> list[Delivery]:
        """One process leases at a time; two at once would both count the same free slots of an endpoint."""
        bound = {
            "many": many, "each_max": self._tuning.webhook_endpoint_concurrency, "lease": uuid.uuid4().hex,
            "lease_s": self._tuning.webhook_timeout_s + LEASE_SPARE_S,
        }  # fmt: skip
        async with self._single_reads.connect() as connection:
            if not await connection.scalar(_ANY_SOON, {"soon_s": SOON_S}):
                return []
        ACTIVITY.stir()
        async with self._db.begin() as connection:
            if not await connection.scalar(_EXCLUSIVE_LOCK):
                return []
            return [Delivery(**row) for row in (await connection.execute(_LEASE, bound)).mappings()]

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._finish(delivery, await self._sender.send(delivery))
        except Exception:
            log.exception("webhook.failed", endpoint=delivery.endpoint_id, delivery=delivery.id)
        finally:
            self.queue.wake()  # its endpoint may be sent another one now

    async def _finish(self, delivery: Delivery, result: DeliveryResult) -> None:
        delay_s = retry_delay_s(self._settings.webhook_backoff_s, delivery.attempts + 1, random.random())  # noqa: S311 - jitter
        outcome = {
            "id": delivery.id, "lease": delivery.lease, "delivered": result.delivered, "gone": result.gone,
            "pause_s": None if result.delivered or result.gone else delay_s, "answer_status": result.status,
            "error": result.error, "disable_after_s": self._tuning.webhook_disable_after_s,
        }  # fmt: skip
        async with self._db.begin() as connection:
            disabled = await connection.scalar(_FINISH, outcome)
        WEBHOOK_DELIVERIES.labels("delivered" if result.delivered else "failed").inc()
        if not result.delivered:
            log.warning(
                "webhook.delivery_failed",
                endpoint=delivery.endpoint_id,
                delivery=delivery.id,
                error=result.error,
                disabled=bool(disabled),
            )

    async def forget(self) -> int:
        """Deletes a batch of the oldest deliveries past `KEPT_DAYS` or of deleted endpoints; how many."""
        async with self._db.begin() as connection:
            return (await connection.execute(_DELETE_OLD, {"keep_days": KEPT_DAYS})).rowcount
