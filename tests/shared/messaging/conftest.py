"""Fixtures for all event logs: a server of each kind, logs opened by URL as services open theirs, and an outbox."""

import itertools
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.contracts.frames import Event
from shared.messaging.log import START, EventLog, LogEntry, PendingEvent, RedisStreams, log_stream, open_log
from shared.messaging.outbox import emit_events, outbox_tables
from shared.postgres.engine import metadata
from shared.process.settings import ServiceSettings
from tests.support.engines.logs import ClusterNode, LogServer, MockKafka, Nats
from tests.support.wait import wait_until

SERVERS: dict[str, Callable[[Path], LogServer]] = {"redis": ClusterNode, "nats": Nats, "kafka": MockKafka}
sources = itertools.count(1)


class LogEnvironment:
    """A server, and a source that has published nothing yet."""

    def __init__(self, server: LogServer, stack: AsyncExitStack) -> None:
        self.server, self.source = server, f"source{next(sources)}"
        self._stack = stack

    async def open(self) -> EventLog:
        """Opens the log as a service does."""
        settings = ServiceSettings(event_log_url=self.server.url)
        client = Redis()
        return await self._stack.enter_async_context(open_log(settings, client))

    async def read(self, log: EventLog, positions: dict[str, str] | None = None) -> list[LogEntry]:
        """All entries after these positions, or from the start."""
        reached = dict(positions) if positions else dict.fromkeys(await log.streams(self.source), START)
        found: list[LogEntry] = []
        while entries := await log.read(reached, count=100, wait_s=0.2):
            reached |= {entry.stream: entry.position for entry in entries}
            found += entries
        return found

    async def read_until(self, log: EventLog, count: int, positions: dict[str, str] | None = None) -> list[LogEntry]:
        """As `read`, once there are at least `count` entries."""
        found: list[LogEntry] = []

        async def enough() -> bool:
            found[:] = await self.read(log, positions)
            return len(found) >= count

        await wait_until(enough)
        return found


def event(number: int, event_id: str = "arena") -> Event:
    """The same number is the same event."""
    return Event(id=f"{event_id}{number}", type="order.confirmed", event_id=event_id, aggregate="order", version=number)


def pending_events(*numbers: int, event_id: str = "arena") -> list[PendingEvent]:
    """Events of one on-sale, as the relay gives them to the log."""
    events = [event(number, event_id) for number in numbers]
    return [PendingEvent(event.id, event_id, event.type, event.model_dump_json()) for event in events]


def versions(entries: Sequence[LogEntry], event_id: str = "arena") -> list[int]:
    """The versions of the events of one on-sale."""
    events = [Event.model_validate_json(entry.body) for entry in entries]
    return [event.version for event in events if event.event_id == event_id]


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    started = SERVERS[request.param](tmp_path_factory.mktemp(request.param))
    started.start()
    try:
        started.wait()
        yield started
    finally:
        started.end(signal.SIGKILL)


@pytest.fixture
async def environment(server: LogServer) -> AsyncIterator[LogEnvironment]:
    async with AsyncExitStack() as stack:
        if isinstance(server, ClusterNode):
            async with Redis.from_url(server.url) as client:
                await client.flushall()
        yield LogEnvironment(server, stack)


@pytest.fixture
async def schema(own_database: str, postgres: AsyncEngine) -> str:
    """A schema of its own with an outbox."""
    return await new_schema(postgres)


async def new_schema(postgres: AsyncEngine) -> str:
    """Another one."""
    name = f"outbox{next(sources)}"
    outbox_tables(tables := metadata(name))
    async with postgres.begin() as connection:
        await connection.execute(text(f"CREATE SCHEMA {name}"))
        await connection.run_sync(tables.create_all)
    return name


async def emit(postgres: AsyncEngine, schema: str, *numbers: int) -> None:
    """Emits these events in a transaction of their own."""
    async with postgres.begin() as connection:
        await emit_events(connection, schema, [event(number) for number in numbers])


@pytest.fixture
def log(redis: Redis) -> RedisStreams:
    return RedisStreams(redis, length_max=1000)


async def logged(log: EventLog) -> list[int]:
    """The versions of all events of one on-sale in Redis Streams."""
    return versions(await log.read({log_stream("arena"): START}, count=100, wait_s=0))
