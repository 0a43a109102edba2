"""PostgreSQL: every connection, one pool a service (READ COMMITTED, every wait bounded), and transactions.

A URL may name several servers (`postgresql://u@one:5432,two:5432/onsale`). They are tried in turn, the one that
answered last first, each within its own deadline; only a server that accepts writes is used. A pooler that shares
sessions between clients is refused. Pools, listeners and migrations connect so (`Servers.connect`).

A pool is an SQLAlchemy engine. It says how many of its connections are in use, and how many callers got none in time.
When a server dies, all connections to it are dropped together, so one statement fails and not one per connection.

For the few statements that every fan waits for there is a transaction on asyncpg itself (`fenced`), because the cost of
a batch is its round trips. Its advisory lock, the fence against a concurrent Redis rebuild, is taken together with
`BEGIN`, in one message but as a statement of its own: a statement that also read data would use a snapshot older than
the lock.
"""

import asyncio
import importlib.resources
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

import asyncpg
import orjson
from sqlalchemy import Engine, MetaData, TextClause, event, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, PoolProxiedConnection, QueuePool

from shared.errors.database import CONFLICTS, DEADLOCK, WrongDatabase, is_busy, is_full, is_gone, sqlstate_of
from shared.errors.problems import Unavailable
from shared.postgres.settings import WAITS, PostgresSettings, Waits
from shared.runtime import tracing
from shared.runtime.metrics import DATABASE_CONFLICTS, POOL_IN_USE, POOL_SIZE, POOL_TIMEOUTS
from shared.runtime.tracing import sale_log

DB_AWAY = (OperationalError, InterfaceError, PoolTimeout, OSError)
DRIVER = "postgresql+asyncpg://"
PORT = 5432
_HOST = re.compile(r"(\[[^\]]+\]|[^:]*)(?::(\d+))?")
Host = tuple[str, int] | None
FOREIGN_STATEMENTS = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
REFUSED = (
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
TRIES_MAX, PAUSE_MAX_S = 4, 0.05  # of the victim of a deadlock
Answer = TypeVar("Answer")

__all__ = [
    "DB_AWAY", "AsyncConnection", "AsyncEngine", "DBAPIError", "connect", "fenced", "metadata", "retry_deadlocks",
    "statement", "transaction",
]  # fmt: skip


# -- connections -------------------------------------------------------------------------------------------------------


class WrongAddress(WrongDatabase):
    """The URL does not name a PostgreSQL server."""


class SharedSessions(WrongDatabase):
    """The pooler between us and PostgreSQL gives each transaction another session."""

    def __init__(self) -> None:
        super().__init__(
            "PostgreSQL is reached through a pooler that gives every transaction another session (PgBouncer: pool_mode "
            "= transaction or statement). Time limits, prepared statements and LISTEN need one session per client: set "
            "pool_mode = session for this database, or name PostgreSQL itself. See docs/operate/databases.md."
        )


class NoServer(asyncpg.PostgresConnectionError):  # type: ignore[misc]
    """No server named in the URL accepts writes."""


class DriverConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that never cancels a commit that timed out; it is closed instead.

    A commit that waits for its standby and is cancelled remains on the primary alone, where other transactions see it.
    What they then acknowledge would be lost with that primary.
    """

    __slots__ = ("_committing",)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        self._committing = query.startswith("COMMIT")
        status: str = await super().execute(query, *args, timeout=timeout)
        self._committing = False
        return status

    def _cancel_current_command(self, waiter: Any, cancel_waiter: Any = None) -> None:
        """Outside a transaction each statement is a commit of its own, so it is not cancelled either."""
        if self.is_in_transaction() and not getattr(self, "_committing", False):
            super()._cancel_current_command(waiter, cancel_waiter)
        else:
            self._loop.call_soon(self.terminate)  # later: the driver is still handling the time-out


def libpq_url(postgres_url: str) -> str:
    """The URL as psql and asyncpg read it, without the driver name that SQLAlchemy needs. Raises `WrongAddress`."""
    scheme, found, rest = postgres_url.partition("://")
    if not found or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise WrongAddress("This is not a PostgreSQL URL. Write it as postgresql://user@host:5432/database.")
    return f"postgresql://{rest}"


def hosts(postgres_url: str) -> list[Host]:
    """The servers named in a URL, as (host, port); a single `None` if it names one, which the driver parses."""
    _, _, addresses = urlsplit(postgres_url).netloc.rpartition("@")
    named = [_HOST.fullmatch(address) for address in addresses.split(",")]
    if len(named) == 1:
        return [None]
    if not all(match and match[1] for match in named):
        raise WrongAddress(
            "Write the URL of several PostgreSQL servers as postgresql://user@one:5432,two:5432/database."
        )
    return [(match[1].strip("[]"), int(match[2] or PORT)) for match in named if match]


class Servers:
    """The servers named in one URL."""

    def __init__(self, postgres_url: str, *, connect_timeout_s: float) -> None:
        self._url, self._timeout_s = libpq_url(postgres_url), connect_timeout_s
        self._hosts = hosts(self._url)
        self._own_sessions = False

    async def connect(
        self, *, name: str, session: Mapping[str, str] | None = None, answer_timeout_s: float | None = None
    ) -> DriverConnection:
        """A connection to the server that accepts writes, with these session settings.

        Raises `NoServer`, `SharedSessions`, or the driver's error about the URL (wrong password, unknown database). A
        connection that the server ended while it was being opened is opened once more.
        """
        for last in (False, True):
            connection = await self._first(name, answer_timeout_s)
            try:
                await self._begin(connection, name, session or {})
            except FOREIGN_STATEMENTS as shared:
                connection.terminate()
                raise SharedSessions from shared
            except BaseException as failed:
                connection.terminate()
                if not is_gone(failed):
                    raise
                if last:
                    raise NoServer(
                        f"PostgreSQL ended a connection while it was being opened ({_reason(failed)})."
                    ) from failed
            else:
                return connection
        raise AssertionError("unreachable")

    async def _first(self, name: str, answer_timeout_s: float | None) -> DriverConnection:
        failures = []
        for host in list(self._hosts):
            try:
                connection = await self._open(host, name, answer_timeout_s)
            except REFUSED as failed:
                if not isinstance(failed, asyncpg.TargetServerAttributeNotMatched) and not is_gone(failed):
                    raise
                failures.append(f"{_host_port(host)}: {_reason(failed)}")
            else:
                self._hosts.sort(key=lambda other: other != host)
                return connection
        raise NoServer(f"No PostgreSQL server accepts writes ({'; '.join(failures)}).")

    async def _open(self, host: Host, name: str, answer_timeout_s: float | None) -> DriverConnection:
        target: dict[str, Any] = {"host": host[0], "port": host[1]} if host else {}
        wanted = {} if "target_session_attrs=" in self._url else {"target_session_attrs": "read-write"}
        connection: DriverConnection = await asyncpg.connect(
            self._url, **target, **wanted, timeout=self._timeout_s, command_timeout=answer_timeout_s,
            server_settings={"application_name": name}, connection_class=DriverConnection,
        )  # fmt: skip
        return connection

    async def _begin(self, connection: DriverConnection, name: str, session: Mapping[str, str]) -> None:
        """Sets session settings by statement, not at start-up: a pooler rejects start-up settings it does not know."""
        settings = "".join(f", set_config('{key}', '{value}', false)" for key, value in session.items())
        pid = await connection.fetchval(f"SELECT pg_backend_pid(){settings}", timeout=self._timeout_s)
        if pid != connection.get_server_pid() and not self._own_sessions:
            other = await self._first(name, self._timeout_s)
            try:
                self._own_sessions = await _have_own_sessions(connection, other)
            finally:
                other.terminate()
            if not self._own_sessions:
                raise SharedSessions


async def _have_own_sessions(one: DriverConnection, two: DriverConnection) -> bool:
    """Whether two connections through a pooler each keep one server process, whatever the other connection does.

    A pooler that rotates its server connections is found by the third query, one that reuses the last free server
    connection by the fourth.
    """
    pids: dict[DriverConnection, set[int]] = {one: set(), two: set()}

    async def record_pids(*connections: DriverConnection) -> None:
        for connection in connections:
            pids[connection].add(await connection.fetchval("SELECT pg_backend_pid()"))

    try:
        async with two.transaction():
            await record_pids(two, one)
        await record_pids(two, one)
    except asyncpg.PostgresError:
        return False  # no transactions, or a statement that was prepared in another client's session
    return len(pids[one]) == len(pids[two]) == 1 and pids[one] != pids[two]


def _host_port(host: Host) -> str:
    return f"{host[0]}:{host[1]}" if host else "the server"


def _reason(failed: BaseException) -> str:
    if isinstance(failed, asyncpg.TargetServerAttributeNotMatched):
        return "is a standby or read-only"
    if isinstance(failed, TimeoutError):
        return "does not answer"
    return str(failed) or type(failed).__name__


# -- pools -------------------------------------------------------------------------------------------------------------

# A sale's tables grow from nothing to half a million rows in a minute, before they are analyzed. So no statement reads
# a table from start to end where an index fits, as looks cheapest while it is small, and each is planned when it runs:
# a plan that was kept would be for a table of another size. Nor is an index scanned as a bitmap: that reads the entries
# of all rows that once were live and are not vacuumed yet, each time, while an ordinary scan marks them for the next.
# (A BRIN index knows no other scan, and is scanned so: nothing else fits.)
PLANNER = {
    "jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_custom_plan"
}  # fmt: skip


def metadata(schema: str) -> MetaData:
    """The tables of one service, in a schema of its own, with constraint names that migrations can rely on."""
    return MetaData(
        schema=schema,
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        },
    )


def connect(settings: PostgresSettings, *, name: str, waits: Waits = WAITS) -> AsyncEngine:
    """A pool whose connections limit the time of locks and statements and set `application_name`.

    Errors of a server that is gone or full are raised as `OperationalError`.
    """
    servers = Servers(settings.postgres_url, connect_timeout_s=waits.connect_timeout_s)
    session = {
        "statement_timeout": str(waits.statement_timeout_ms),
        "lock_timeout": str(waits.lock_timeout_ms),
        "idle_in_transaction_session_timeout": str(waits.idle_transaction_timeout_ms),
        "default_transaction_isolation": "read committed",
        **PLANNER,
    }

    async def open_one() -> DriverConnection:
        return await servers.connect(name=f"onsale-{name}", session=session, answer_timeout_s=waits.answer_timeout_s)

    db = create_async_engine(
        DRIVER,
        async_creator=open_one,
        json_deserializer=orjson.loads,
        poolclass=_measured_pool(name),
        pool_size=settings.postgres_pool_max,
        max_overflow=0,
        pool_timeout=waits.pool_wait_s,
        pool_pre_ping=False,
        pool_use_lifo=True,  # the last used connection has prepared statements and warm caches
    )
    _measure(db.sync_engine, name)
    _drop_connections_together(db.sync_engine)
    _count_conflicts(db.sync_engine, name)
    if tracing.tracer is not None or sale_log.on:
        _follow_statements(db.sync_engine)
    return db


def _count_conflicts(db: Engine, name: str) -> None:
    counters = {state: DATABASE_CONFLICTS.labels(name, kind) for state, kind in CONFLICTS.items()}

    @event.listens_for(db, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        state = sqlstate_of(context.original_exception)
        if state in counters:
            counters[state].inc()


def _drop_connections_together(db: Engine) -> None:
    """Drops every connection opened before one that was found dead, without a ping."""
    dead_before_s = 0.0

    @event.listens_for(db, "connect")
    def on_connect(_: Any, record: Any) -> None:
        record.info["since_s"] = time.monotonic()

    @event.listens_for(db, "invalidate")
    def on_invalidate(_: Any, __: Any, failed: BaseException | None) -> None:
        nonlocal dead_before_s
        if failed is not None and is_gone(failed):
            dead_before_s = time.monotonic()

    @event.listens_for(db, "checkout")
    def on_checkout(connection: Any, record: Any, _: Any) -> None:
        if connection.driver_connection.is_closed() or record.info["since_s"] < dead_before_s:
            raise InvalidatePoolError

    @event.listens_for(db, "handle_error")
    def on_error(context: ExceptionContext) -> BaseException | None:
        failed = context.original_exception
        if not isinstance(failed, Exception) or not (is_gone(failed) or is_full(failed)):
            return None
        context.is_disconnect = is_gone(failed)
        return OperationalError(context.statement, None, failed)


def _follow_statements(db: Engine) -> None:
    """A span for each statement inside a trace, and a line for those of logged steps, whose time has its wait for locks
    in it: with the name of its file or its first word, never its values.
    """

    @event.listens_for(db, "before_cursor_execute")
    def before(_: Any, __: Any, sql: str, ___: Any, context: Any, ____: bool) -> None:
        clause = getattr(context.compiled, "statement", None)
        name = _names.get(clause) if isinstance(clause, TextClause) else None
        name = name or sql.split(maxsplit=1)[0].lower()
        context.onsale_span = spans = ExitStack()
        spans.enter_context(tracing.span(f"sql {name}"))
        spans.enter_context(sale_log.timed("sale.statement", statement=name))

    def ended(context: Any) -> None:
        if span := context.__dict__.pop("onsale_span", None):
            span.close()

    event.listen(db, "after_cursor_execute", lambda *of: ended(of[4]))
    event.listen(db, "handle_error", lambda error: ended(error.execution_context) if error.execution_context else None)


_names: WeakKeyDictionary[TextClause, str] = WeakKeyDictionary()


def statement(package: str, verb: str, part: str = "") -> TextClause:
    """The statement of `<package>/sql/<verb>.sql`, with one more `part` of its `WITH` if it is given; arrays are bound
    as `CAST(:name AS bigint[])`.
    """
    sql = raw_statement(package, verb)
    made = text(sql.replace("\n)\nSELECT", f"\n), {part}\nSELECT") if part else sql)
    _names[made] = f"{package.removeprefix('services.').removeprefix('features.')}:{verb}"
    return made


def raw_statement(package: str, verb: str) -> str:
    """The same for the driver itself, with parameters `$1`, `$2` and so on."""
    return importlib.resources.files(package).joinpath("sql", f"{verb}.sql").read_text()


def _measured_pool(service: str) -> type[AsyncAdaptedQueuePool]:
    """The pool of this service; it counts the callers that got no connection in time."""
    timeouts = POOL_TIMEOUTS.labels(service, "postgresql")

    class MeasuredPool(AsyncAdaptedQueuePool):
        """Counts who waited in vain."""

        def connect(self) -> PoolProxiedConnection:
            try:
                return super().connect()
            except PoolTimeout:
                timeouts.inc()
                raise

    return MeasuredPool


def _measure(db: Engine, service: str) -> None:
    """Shows the size of the engine's pool and how many connections are in use."""
    pool = db.pool
    POOL_SIZE.labels(service, "postgresql").set(pool.size() if isinstance(pool, QueuePool) else 0)
    POOL_IN_USE.labels(service, "postgresql").set_function(partial(_in_use, ref(db)))


def _in_use(engine: "ref[Engine]") -> int:
    pool = db.pool if (db := engine()) is not None else None
    return pool.checkedout() if isinstance(pool, QueuePool) else 0


# -- transactions ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def transaction(db: AsyncEngine, *, dry_run: bool = False) -> AsyncIterator[AsyncConnection]:
    """A transaction that commits at its end. In a dry run every check and write is made, and then rolled back."""
    async with db.connect() as connection, connection.begin() as change:
        yield connection
        if dry_run:
            await change.rollback()


@asynccontextmanager
async def snapshot(db: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A read-only transaction whose statements all see one snapshot (REPEATABLE READ).

    Not for writes: they would be decided on a snapshot older than their locks.
    """
    async with db.connect() as plain:
        connection = await plain.execution_options(isolation_level="REPEATABLE READ")
        async with connection.begin():
            yield connection


@asynccontextmanager
async def fenced(db: AsyncEngine, opening: str) -> AsyncIterator[Any]:
    """asyncpg's connection inside a transaction that `opening` began (`BEGIN; SELECT …lock`).

    Raises `Unavailable` if PostgreSQL is unreachable, when the outcome is unknown, or if a lock was held too long, when
    nothing was written. A deadlock is raised as it is, because the victim may start again at once.
    """
    async with db.connect() as connection:
        try:
            driver = await _begin(connection, opening)
            yield driver
            await driver.execute("COMMIT")
        except Exception as failed:
            if is_gone(failed):
                await connection.invalidate(failed)
                raise Unavailable("The database does not answer.") from failed
            await (await driver_connection(connection)).execute("ROLLBACK")
            if is_busy(failed) and sqlstate_of(failed) != DEADLOCK:
                raise Unavailable("The database is busy.") from failed
            raise
        except BaseException:
            await connection.invalidate()  # cancelled in an unknown state: the server rolls back
            raise


async def _begin(connection: AsyncConnection, opening: str) -> Any:
    """Begins the transaction. A connection that its server had ended is replaced once: it had not run anything yet."""
    driver = await driver_connection(connection)
    try:
        await driver.execute(opening)
    except Exception as failed:
        if not is_gone(failed) or isinstance(failed, TimeoutError):
            raise
        await connection.invalidate(failed)
        driver = await driver_connection(connection)
        await driver.execute(opening)
    return driver


async def driver_connection(connection: AsyncConnection) -> Any:
    """asyncpg's connection beneath SQLAlchemy's, in its present transaction."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return driver


async def retry_deadlocks(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """The result of `work`, a transaction. The victim of a deadlock was rolled back completely, so it starts again.

    Raises `Unavailable` after `TRIES_MAX` deadlocks.
    """
    tries = 0
    while True:
        try:
            return await work()
        except Exception as failed:
            if sqlstate_of(failed) != DEADLOCK:
                raise
            tries += 1
            if tries == TRIES_MAX:
                raise Unavailable("The database is busy.") from failed
        await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))  # noqa: S311 - jitter: the same transactions must not deadlock again
