"""The one door to PostgreSQL: pools, listeners and migrations open their connections here.

An address may name several servers (`postgresql://u@one:5432,two:5432/onsale`). They are asked in turn, the one that
answered last first, each within a deadline of its own; only one that takes writes is taken. A pooler that hands our
sessions to others is refused.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from shared.postgres.errors import is_gone
from shared.postgres.isolation import WrongDatabase

PORT = 5432
_HOST = re.compile(r"(\[[^\]]+\]|[^:]*)(?::(\d+))?")
Host = tuple[str, int] | None
ANOTHERS_STATEMENTS = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
REFUSED = (
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)


class WrongAddress(WrongDatabase):
    """This is no address of a PostgreSQL."""


class SharedSessions(WrongDatabase):
    """A pooler gives every transaction another session."""

    def __init__(self) -> None:
        super().__init__(
            "PostgreSQL is reached through a pooler that gives every transaction another session (PgBouncer: pool_mode "
            "= transaction or statement). Time limits, prepared statements and LISTEN need a session of their own: set "
            "pool_mode = session for this database, or name PostgreSQL itself in the address. See docs/databases.md."
        )


class NoServer(asyncpg.PostgresConnectionError):  # type: ignore[misc]
    """No server of the address takes writes."""


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that never asks its server to stop a commit it gave up waiting for; it is closed instead.

    A commit that waits for its standby and is asked to stop stands on the primary alone, where others see it: what they
    then acknowledge would be lost with that primary.
    """

    __slots__ = ("_committing",)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        self._committing = query.startswith("COMMIT")
        status: str = await super().execute(query, *args, timeout=timeout)
        self._committing = False
        return status

    def _cancel_current_command(self, waiter: Any, cancel_waiter: Any = None) -> None:
        """Outside a transaction every statement is its own commit."""
        if self.is_in_transaction() and not getattr(self, "_committing", False):
            super()._cancel_current_command(waiter, cancel_waiter)
        else:
            self._loop.call_soon(self.terminate)  # the driver is still in the middle of giving up


def plain(postgres_url: str) -> str:
    """The address as psql and the driver read it, without SQLAlchemy's name of a driver."""
    scheme, found, rest = postgres_url.partition("://")
    if not found or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise WrongAddress("This is no address of a PostgreSQL; one is postgresql://user@host:5432/database.")
    return f"postgresql://{rest}"


def hosts(postgres_url: str) -> list[Host]:
    """The servers an address names, as (host, port); one `None` where the driver finds out itself."""
    _, _, places = urlsplit(postgres_url).netloc.rpartition("@")
    named = [_HOST.fullmatch(place) for place in places.split(",")]
    if len(named) == 1:
        return [None]
    if not all(match and match[1] for match in named):
        raise WrongAddress("An address of several PostgreSQL servers is postgresql://user@one:5432,two:5432/database.")
    return [(match[1].strip("[]"), int(match[2] or PORT)) for match in named if match]


class Servers:
    """The servers of one address."""

    def __init__(self, postgres_url: str, *, connect_timeout_s: float) -> None:
        self._url, self._timeout_s = plain(postgres_url), connect_timeout_s
        self._hosts = hosts(self._url)
        self._own_sessions = False

    async def connect(
        self, *, name: str, session: Mapping[str, str] | None = None, answer_timeout_s: float | None = None
    ) -> Connection:
        """A connection to the server that takes writes, with these settings of its session.

        Raises `NoServer`, `SharedSessions`, or what is wrong with the address (a password, a database). A connection
        that somebody ended while it was being opened is opened once more.
        """
        for last in (False, True):
            connection = await self._first(name, answer_timeout_s)
            try:
                await self._begin(connection, name, session or {})
            except ANOTHERS_STATEMENTS as shared:
                connection.terminate()
                raise SharedSessions from shared
            except BaseException as failed:
                connection.terminate()
                if not is_gone(failed):
                    raise
                if last:
                    raise NoServer(f"The ledger ended a connection that was being opened ({_why(failed)}).") from failed
            else:
                return connection
        raise AssertionError("unreachable")

    async def _first(self, name: str, answer_timeout_s: float | None) -> Connection:
        failures = []
        for host in list(self._hosts):
            try:
                connection = await self._open(host, name, answer_timeout_s)
            except REFUSED as failed:
                if not isinstance(failed, asyncpg.TargetServerAttributeNotMatched) and not is_gone(failed):
                    raise
                failures.append(f"{_spelled(host)}: {_why(failed)}")
            else:
                self._hosts.sort(key=lambda other: other != host)
                return connection
        raise NoServer(f"No server of the ledger takes writes ({'; '.join(failures)}).")

    async def _open(self, host: Host, name: str, answer_timeout_s: float | None) -> Connection:
        place: dict[str, Any] = {"host": host[0], "port": host[1]} if host else {}
        wanted = {} if "target_session_attrs=" in self._url else {"target_session_attrs": "read-write"}
        connection: Connection = await asyncpg.connect(
            self._url, **place, **wanted, timeout=self._timeout_s, command_timeout=answer_timeout_s,
            server_settings={"application_name": name}, connection_class=Connection,
        )  # fmt: skip
        return connection

    async def _begin(self, connection: Connection, name: str, session: Mapping[str, str]) -> None:
        """Settings by statement, not with the connection: a pooler knows no others than its own."""
        settings = "".join(f", set_config('{key}', '{value}', false)" for key, value in session.items())
        pid = await connection.fetchval(f"SELECT pg_backend_pid(){settings}", timeout=self._timeout_s)
        if pid != connection.get_server_pid() and not self._own_sessions:
            other = await self._first(name, self._timeout_s)
            try:
                self._own_sessions = await _keep_their_sessions(connection, other)
            finally:
                other.terminate()
            if not self._own_sessions:
                raise SharedSessions


async def _keep_their_sessions(one: Connection, two: Connection) -> bool:
    """Whether two connections through a pooler have a server process each, whatever the other does. One that takes
    turns betrays itself by the third question, one that gives out what came back last by the fourth.
    """
    seen: dict[Connection, set[int]] = {one: set(), two: set()}

    async def look(*those: Connection) -> None:
        for each in those:
            seen[each].add(await each.fetchval("SELECT pg_backend_pid()"))

    try:
        async with two.transaction():
            await look(two, one)
        await look(two, one)
    except asyncpg.PostgresError:
        return False  # no transactions, or a statement that was prepared in another's session
    return len(seen[one]) == len(seen[two]) == 1 and seen[one] != seen[two]


def _spelled(host: Host) -> str:
    return f"{host[0]}:{host[1]}" if host else "the server"


def _why(failed: BaseException) -> str:
    if isinstance(failed, asyncpg.TargetServerAttributeNotMatched):
        return "is a standby or read-only"
    if isinstance(failed, TimeoutError):
        return "does not answer"
    return str(failed) or type(failed).__name__
