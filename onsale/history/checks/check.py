"""What all checks of a history have in common: findings, lines of the file, faults that the history names.

A repeated request, by its idempotency key, has the same answer.
"""

import json
from abc import ABC, abstractmethod
from bisect import bisect_right
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


KEPT_MAX = 50  # violations of one check that are kept; all are counted
FAULT_LASTS_MS = 60_000  # how long after its end a noted fault may still be the reason of what fans read
CLOCKS_MS = 2_000  # clocks of one machine's processes and engines agree better than this

Line = dict[str, Any]
Place = tuple[str, int, int, int]  # event_id, epoch, lane, join_seq


class Violation(NamedTuple):
    """One promise that was broken, and the lines of the history that prove it, counted from 1."""

    check: str
    sentence: str
    lines: tuple[int, ...] = ()


class Check(ABC):
    """Reads every line of `KINDS` in order, and is then compared with the books."""

    TITLE: str
    KINDS: frozenset[str]

    def __init__(self) -> None:
        self.compared = 0  # acknowledgements, or pairs of them, that were held to something
        self.broken = 0
        self.violations: list[Violation] = []

    def violated(self, sentence: str, *lines: int) -> None:
        self.broken += 1
        if self.broken <= KEPT_MAX:
            self.violations.append(Violation(self.TITLE, sentence, tuple(sorted({*lines}))))

    @abstractmethod
    def read(self, number: int, line: Line) -> None:
        """One line of the history, numbered from 1."""

    @abstractmethod
    async def compare(self, books: Books) -> None:
        """Compares what was read with the databases and the provider's book."""


class Faults:
    """When something was broken on purpose, by the notes `fault_began`, `fault_ended` and `fault`."""

    KINDS = frozenset({"fault_began", "fault_ended", "fault"})

    def __init__(self) -> None:
        self._began: list[int] = []
        self._ended: list[int] = []

    def read(self, line: Line) -> None:
        if line["what"] != "fault_ended":
            self._began.append(line["at_ms"])
        if line["what"] != "fault_began":
            self._ended.append(line["at_ms"] + FAULT_LASTS_MS)

    def explain(self, from_ms: int, to_ms: int) -> bool:
        """Whether any fault lasted, or had ended within a minute, at some time between these two."""
        began = bisect_right(self._began, to_ms)
        over = bisect_right(self._ended, from_ms - 1)
        return began > over


def place_of(line: Line) -> Place | None:
    """The place that this line is about, if it names one completely."""
    place = (line.get("event_id"), line.get("epoch"), line.get("lane"), line.get("join_seq"))
    return None if None in place else place  # type: ignore[return-value]


def name_of(place: Place) -> str:
    event_id, epoch, lane, join_seq = place
    return f"place {join_seq} of lane {lane}, epoch {epoch}, of {event_id}"


IDENTITY = {"joined": "fan", "held": "reservation_id", "ordered": "reference", "payment_started": "reference"}


class Keys(Check):
    """What a request created is the same at every repetition; the other parts of the answer may go on."""

    TITLE = "a repeated key has the same answer"
    KINDS = frozenset(IDENTITY)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str | None, str, str], tuple[int, str]] = {}

    def read(self, number: int, line: Line) -> None:
        what = line["what"]
        identity = line.get(IDENTITY[what])
        if identity is None or "key" not in line:
            return
        key = what, line.get("event_id"), line["key"], line["request"]
        known = self._known.setdefault(key, (number, identity))
        if known[0] != number:
            self.compared += 1
        if known[1] != identity:
            self.violated(f"one key was answered with {known[1]} and {identity}", known[0], number)

    async def compare(self, books: Books) -> None:
        """Everything was decided while reading."""
