"""The databases of a sale and its payment provider's book, opened for reading only."""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx

SQL = Path(__file__).parent / "sql"
PREFETCH, CHUNK, PAGE = 2_000, 2_000, 1_000
CONNECT_S = 10
Item = TypeVar("Item")


class Sources(NamedTuple):
    """Where to read: each service's PostgreSQL, and the provider if its book can be listed."""

    queue: str
    inventory: str
    orders: str
    provider: str | None = None


class Books:
    """Every read of one database is of the same moment; `provider` was read just before. `events` are those that are
    checked although no line may name them.
    """

    def __init__(
        self, connections: Mapping[str, Any], provider: list[dict[str, Any]] | None, events: Collection[str] = ()
    ) -> None:
        self._connections, self.provider, self.events = connections, provider, events

    async def rows(self, service: str, name: str, *values: Any) -> AsyncIterator[Any]:
        """The rows of `sql/<name>.sql`, as they come."""
        async for row in self._connections[service].cursor(statement(name), *values, prefetch=PREFETCH):
            yield row

    async def rows_of(self, service: str, name: str, ids: Iterable[Any], *values: Any) -> AsyncIterator[Any]:
        """The rows of a statement whose $1 is a list of ids, read in pieces."""
        for some in chunks(ids):
            for row in await self._connections[service].fetch(statement(name), some, *values):
                yield row


@cache
def statement(name: str) -> str:
    return (SQL / f"{name}.sql").read_text()


def chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """Pieces of what is there now: the reader may take items out meanwhile."""
    rest = iter(tuple(items))
    while some := list(islice(rest, size)):
        yield some


@asynccontextmanager
async def open_books(sources: Sources, events: Collection[str] = ()) -> AsyncIterator[Books]:
    """Reads the provider's book, then opens one transaction for each database. What the provider did before it was
    read, the databases may know; what it does later is not compared.
    """
    provider = await charges(sources.provider) if sources.provider else None
    async with AsyncExitStack() as stack:
        opened: dict[str, Any] = {}
        for service in ("orders", "inventory", "queue"):  # what orders had confirmed is sold in a later snapshot
            url = getattr(sources, service)
            if url not in opened:
                opened[url] = await stack.enter_async_context(_snapshot(url))
        yield Books(
            {service: opened[getattr(sources, service)] for service in ("orders", "inventory", "queue")},
            provider,
            events,
        )


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[Any]:
    connection = await _connect(url)
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield connection
    finally:
        await connection.close(timeout=CONNECT_S)


async def _connect(url: str) -> Any:
    """A connection to the first server of the URL that answers and takes writes: a standby may be behind."""
    parts = urlsplit(url.replace("postgresql+asyncpg://", "postgresql://", 1))
    login, _, hosts = parts.netloc.rpartition("@")
    failed: Exception | None = None
    for host in hosts.split(","):
        one = urlunsplit(parts._replace(netloc=f"{login}@{host}" if login else host))
        try:
            return await asyncpg.connect(
                one, timeout=CONNECT_S, target_session_attrs="read-write",
                server_settings={"application_name": "onsale check-history"},
            )  # fmt: skip
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.TargetServerAttributeNotMatched) as error:
            failed = error
    raise OSError(f"No server answers at {hosts}.") from failed


async def charges(url: str) -> list[dict[str, Any]]:
    """The provider's list of charges, oldest first."""
    found: list[dict[str, Any]] = []
    since, more = "1970-01-01T00:00:00Z", True
    async with httpx.AsyncClient(base_url=url, timeout=CONNECT_S, trust_env=False) as client:
        while more:
            answer = await client.get("/charges", params={"since": since, "limit": PAGE})
            page = answer.raise_for_status().json()
            found += page["charges"]
            more = page["has_more"] and bool(page["charges"])
            since = page["charges"][-1]["id"] if page["charges"] else since
    return found
