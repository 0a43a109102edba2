"""The job engine behind one small door: a job is only a wake-up call, rows say what is to be done.

A job is accepted in the transaction of the rows it is about, on that transaction's own connection. Losing one costs a
sweep (a second); a job that fails is tried again with growing pauses, then kept to be looked at, never deleted.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence import qb, schema_ddl
from pgqueuer.core.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.models import Job
from pgqueuer.domain.settings import DBSettings
from pgqueuer.queries import Queries
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orders.metrics import WAKE_UPS
from shared.postgres.connect import Servers
from shared.postgres.settings import PostgresSettings

PROCESS_ORDER = "settle"
LISTENER = "onsale-orders-jobs"
BATCH_MAX = 50
REPICK_AFTER_S = 30
CLOSE_S = 1.0
DEQUEUE_S = 5.0
TRIES_MAX = 5
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
_names = DBSettings(db_schema="orders", channel="orders_jobs")


class EnqueueFailed(Exception):
    """The job engine did not take a job in time; the transaction it was part of is lost with it."""


def install_sql() -> str:
    """The job engine's own tables, in our schema."""
    return schema_ddl.render_install(_names, create_schema=False)


def uninstall_sql() -> str:
    """Removes them again."""
    return schema_ddl.render_uninstall(_names)


def _queries(connection: asyncpg.Connection) -> Queries:
    return Queries(
        AsyncpgDriver(connection),
        qbe=qb.QueryBuilderEnvironment(_names),
        qbq=qb.QueryQueueBuilder(_names),
        qbs=qb.QuerySchedulerBuilder(_names),
    )


class JobQueue:
    """Accepts jobs in a caller's transaction, and wakes this process when one arrives."""

    def __init__(self, ledger: PostgresSettings, *, accept_s: float) -> None:
        self._servers = Servers(ledger.postgres_url, connect_timeout_s=ledger.postgres_connect_timeout_s)
        self._answer_timeout_s, self._accept_s = ledger.postgres_answer_timeout_s, accept_s

    async def enqueue(self, connection: AsyncConnection, reference: str) -> None:
        """Asks for a worker once this transaction has committed. Raises `EnqueueFailed`.

        The transaction must have run a statement before: only then is it open on the driver's connection.
        """
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        assert raw.is_in_transaction(), "a job outside a transaction would survive its rollback"
        try:
            async with asyncio.timeout(self._accept_s):
                await _queries(raw).enqueue(PROCESS_ORDER, reference.encode())
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as refused:
            if raw.is_closed():
                await connection.invalidate()  # nothing is left to roll back on
            raise EnqueueFailed from refused

    async def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` for every job until cancelled; on a connection of its own, because it listens."""
        connection = await self._servers.connect(name=LISTENER, answer_timeout_s=self._answer_timeout_s)
        try:
            manager = QueueManager(_queries(connection), _names.channel)

            @manager.entrypoint(PROCESS_ORDER, on_failure="hold", executor_factory=_retrying())
            async def settle(job: Job) -> None:
                WAKE_UPS.inc()
                wake()

            run = asyncio.create_task(
                manager.run(
                    dequeue_timeout=timedelta(seconds=DEQUEUE_S),
                    batch_size=BATCH_MAX,
                    heartbeat_timeout=timedelta(seconds=REPICK_AFTER_S),
                    shutdown_on_listener_failure=True,
                )
            )
            await _until_over(run, manager.shutdown)
        finally:
            connection.terminate()


def _retrying() -> Callable[..., DatabaseRetryEntrypointExecutor]:
    """The job engine's own default is to try once."""
    return partial(
        DatabaseRetryEntrypointExecutor, max_attempts=TRIES_MAX, initial_delay=timedelta(seconds=RETRY_FIRST_S),
        max_delay=timedelta(seconds=RETRY_MAX_S),
    )  # fmt: skip


async def _until_over(run: asyncio.Task[None], shutdown: asyncio.Event) -> None:
    """The manager swallows cancellation, so it is told to end and given a moment; it never outlives its caller."""
    try:
        await asyncio.wait([run])
        run.result()
    finally:
        shutdown.set()
        await asyncio.wait([run], timeout=CLOSE_S)
        run.cancel()
