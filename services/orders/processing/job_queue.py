"""The job queue (pgqueuer): a job only wakes the workers; the rows say what is due.

A job is enqueued in the transaction of its rows, on the same connection. A lost job costs one sweep (a second). A job
that fails is retried with growing pauses, then kept for inspection, never deleted.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import asyncpg
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence import qb, schema_ddl
from pgqueuer.core import buffers
from pgqueuer.core.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.models import Job
from pgqueuer.domain.settings import DBSettings
from pgqueuer.queries import Queries
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.orders.metrics import JOBS_RECEIVED
from shared.postgres.connect import Servers
from shared.postgres.settings import WAITS, PostgresSettings

PROCESS_ORDER = "process_order"
LISTENER = "onsale-orders-jobs"
BATCH_MAX = 50
HEARTBEAT_TIMEOUT_S = 30
SHUTDOWN_TIMEOUT_S = 1.0
DEQUEUE_TIMEOUT_S = 5.0
ATTEMPTS_MAX = 5
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
_JOB_TABLES = DBSettings(db_schema="orders", channel="orders_jobs")


@dataclasses.dataclass
class JobLogBuffer(buffers.JobStatusLogBuffer):
    """Writes what was logged of jobs a moment later. pgqueuer's own buffer wakes ten times a second to look for it."""

    filled: asyncio.Event = dataclasses.field(init=False, default_factory=asyncio.Event)

    async def add(self, item: Any) -> None:
        self.filled.set()
        await super().add(item)

    async def periodic_flush(self) -> None:
        while not self.shutdown.is_set():
            await self.filled.wait()
            self.filled.clear()
            await asyncio.sleep(self.timeout.total_seconds())
            await self.flush()
            if not self.events.empty():  # it could not be written
                self.filled.set()

    async def __aexit__(self, *failed: object) -> None:
        self.filled.set()
        await super().__aexit__(*failed)


buffers.JobStatusLogBuffer = JobLogBuffer  # type: ignore[misc]  # the queue manager takes no other by itself


class Committed(NamedTuple):
    """`written`: what `write` answered. `has_job`: a job was enqueued with it."""

    written: bool
    has_job: bool


class EnqueueFailed(Exception):
    """The job was not accepted in time; its transaction is lost with it."""


def install_sql() -> str:
    """The tables of pgqueuer, in the schema `orders`."""
    return schema_ddl.render_install(_JOB_TABLES, create_schema=False)


def uninstall_sql() -> str:
    """Drops them."""
    return schema_ddl.render_uninstall(_JOB_TABLES)


def _queries(connection: asyncpg.Connection) -> Queries:
    return Queries(
        AsyncpgDriver(connection),
        qbe=qb.QueryBuilderEnvironment(_JOB_TABLES),
        qbq=qb.QueryQueueBuilder(_JOB_TABLES),
        qbs=qb.QuerySchedulerBuilder(_JOB_TABLES),
    )


class JobQueue:
    """Enqueues jobs in a caller's transaction, and wakes this process when one arrives."""

    def __init__(self, postgres: PostgresSettings, *, accept_s: float) -> None:
        self._servers = Servers(postgres.postgres_url, connect_timeout_s=WAITS.connect_timeout_s)
        self._accept_s = accept_s

    async def enqueue(self, connection: AsyncConnection, reference: str) -> None:
        """Enqueues a job that takes effect when this transaction commits. Raises `EnqueueFailed`.

        The transaction must have run a statement before: only then is it open on the driver's connection.
        """
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        assert raw.is_in_transaction(), "a job outside a transaction would survive its rollback"
        try:
            async with asyncio.timeout(self._accept_s):
                await _queries(raw).enqueue(PROCESS_ORDER, reference.encode())
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as failed:
            if raw.is_closed():
                await connection.invalidate()  # nothing is left to roll back on
            raise EnqueueFailed from failed

    async def commit_with_job(
        self, db: AsyncEngine, reference: str, write: Callable[[AsyncConnection], Awaitable[bool]], *,
        enqueue: bool = True,
    ) -> Committed:  # fmt: skip
        """Runs `write` in a transaction that enqueues a job if anything was written. If the job is not accepted, once
        more without: the next sweep finds the order.
        """
        if enqueue:
            with suppress(EnqueueFailed):
                async with db.begin() as connection:
                    if written := await write(connection):
                        await self.enqueue(connection, reference)
                return Committed(written, has_job=written)
        async with db.begin() as connection:
            return Committed(await write(connection), has_job=False)

    async def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` for every job until cancelled, on a connection of its own that listens."""
        connection = await self._servers.connect(name=LISTENER, answer_timeout_s=WAITS.answer_timeout_s)
        try:
            manager = QueueManager(_queries(connection), _JOB_TABLES.channel)

            @manager.entrypoint(PROCESS_ORDER, on_failure="hold", executor_factory=_retrying())
            async def process_order(job: Job) -> None:
                JOBS_RECEIVED.inc()
                wake()

            run = asyncio.create_task(
                manager.run(
                    dequeue_timeout=timedelta(seconds=DEQUEUE_TIMEOUT_S),
                    batch_size=BATCH_MAX,
                    heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
                    shutdown_on_listener_failure=True,
                )
            )
            await _run_until_ended(run, manager.shutdown)
        finally:
            connection.terminate()


def _retrying() -> Callable[..., DatabaseRetryEntrypointExecutor]:
    """pgqueuer's default is a single try."""
    return partial(
        DatabaseRetryEntrypointExecutor, max_attempts=ATTEMPTS_MAX, initial_delay=timedelta(seconds=RETRY_FIRST_S),
        max_delay=timedelta(seconds=RETRY_MAX_S),
    )  # fmt: skip


async def _run_until_ended(run: asyncio.Task[None], shutdown: asyncio.Event) -> None:
    """The manager swallows cancellation, so it is asked to shut down and given `SHUTDOWN_TIMEOUT_S`; it never outlives
    its caller.
    """
    try:
        await asyncio.wait([run])
        run.result()
    finally:
        shutdown.set()
        await asyncio.wait([run], timeout=SHUTDOWN_TIMEOUT_S)
        run.cancel()
