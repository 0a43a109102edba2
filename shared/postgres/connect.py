"""Opens every connection to PostgreSQL: pools, listeners and migrations use `Servers.connect`.

A URL may name several servers (`postgresql://u@one:5432,two:5432/onsale`). They are tried in turn, the one that
answered last first, each within its own deadline; only a server that accepts writes is used. A pooler that shares
sessions between clients is refused.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from shared.errors.database import WrongDatabase, is_gone

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
