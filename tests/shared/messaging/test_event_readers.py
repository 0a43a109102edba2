"""Readers of an outbox: a feature acts on every event once it is decided, and stops nobody but itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.contracts.frames import Event
from shared.messaging import relay as relay_module
from shared.messaging.log import PendingEvent, RedisStreams
from shared.messaging.outbox import emit_events
from shared.messaging.relay import EventReader, Outbox, Relay
from shared.messaging.republish import set_back
from tests.shared.messaging.conftest import emit, event, logged
from tests.shared.messaging.test_relay import Process, execute, fetch, relay_all

Fault = Callable[[], Awaitable[object]]


class Mailer:
    """A feature that notes each event in a table of its own, and does `fault` after it."""

    def __init__(self, postgres: AsyncEngine, schema: str, name: str = "mailer") -> None:
        self.postgres, self.schema = postgres, schema
        self.fault: Fault | None = None
        self.committed = 0
        self.reader = EventReader(postgres, schema, name, self.take, then=self.count)
        self._relay = Relay(self.reader)

    def count(self) -> None:
        self.committed += 1

    async def take(self, connection: AsyncConnection, events: Sequence[PendingEvent]) -> None:
        for each in events:
            number = Event.model_validate_json(each.body).version
            await connection.execute(text(f"INSERT INTO {self.schema}.noted (number) VALUES ({number})"))
        if self.fault:
            await self.fault()

    async def look(self) -> None:
        """A look of its process' relay."""
        await self._relay.run()

    async def read(self) -> None:
        """And what it reads after it."""
        await self.look()
        await self.reader.work()

    async def noted(self) -> list[int]:
        async with self.postgres.connect() as connection:
            found = await connection.execute(text(f"SELECT number FROM {self.schema}.noted ORDER BY id"))
            return [row.number for row in found]


@pytest.fixture
async def mailer(postgres: AsyncEngine, schema: str) -> Mailer:
    await execute(postgres, f"CREATE TABLE {schema}.noted (id bigint GENERATED ALWAYS AS IDENTITY, number bigint)")
    mailer = Mailer(postgres, schema)
    await mailer.reader.begin()
    return mailer


@pytest.fixture
def relay(postgres: AsyncEngine, log: RedisStreams, schema: str) -> Process:
    return Process(Outbox(postgres, log, schema))


async def fail() -> None:
    raise RuntimeError("no")


def position(mailer: Mailer, name: str = "mailer") -> Awaitable[int]:
    return fetch(mailer.postgres, f"SELECT id FROM {mailer.schema}.outbox_cursor WHERE name = '{name}'")


async def test_an_event_is_taken_once_it_is_decided_and_in_order(postgres, schema, mailer) -> None:
    """A lower id may commit after a higher one."""
    async with postgres.connect() as slow:
        await emit_events(slow, schema, [event(1)])
        await emit(postgres, schema, 2)
        await mailer.read()
        assert await mailer.noted() == []
        await slow.commit()
    await mailer.read()
    await mailer.read()
    assert (await mailer.noted(), mailer.committed) == ([1, 2], 1)


async def test_what_it_writes_is_written_once_though_it_fails(postgres, schema, mailer) -> None:
    """Effect and cursor are of one transaction, so the same events come again."""
    await emit(postgres, schema, 1, 2)
    mailer.fault = fail
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await mailer.read()
    assert (await mailer.noted(), await position(mailer), mailer.committed) == ([], 0, 0)
    mailer.fault = None
    await mailer.read()
    assert (await mailer.noted(), await position(mailer)) == ([1, 2], 1)


async def test_one_that_fails_stops_neither_the_log_nor_another(postgres, log, schema, mailer, relay) -> None:
    other = Mailer(postgres, schema, "other")
    await other.reader.begin()
    mailer.fault = fail
    for number in (1, 2):
        await emit(postgres, schema, number)
        with pytest.raises(RuntimeError):
            await mailer.read()
        await relay_all(relay)
        await other.read()
    assert await logged(log) == await other.noted() == [1, 2]


async def test_the_log_that_takes_nothing_stops_no_reader(postgres, schema, mailer, relay) -> None:
    await emit(postgres, schema, 1)
    await mailer.read()
    assert await mailer.noted() == [1]
    assert await position(mailer) == 1
    assert await fetch(postgres, f"SELECT count(*) FROM {schema}.outbox_cursor WHERE name = 'relay'") == 0


async def test_one_that_hangs_has_failed(postgres, schema, mailer, monkeypatch) -> None:
    monkeypatch.setattr(relay_module, "TAKE_S", 0.05)
    await emit(postgres, schema, 1)
    mailer.fault = asyncio.Event().wait
    with pytest.raises(TimeoutError):
        await mailer.read()
    mailer.fault = None
    await mailer.read()
    assert await mailer.noted() == [1]


async def test_several_processes_take_each_event_once_between_them(postgres, schema, mailer) -> None:
    second = Mailer(postgres, schema)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        began.set()
        await go_on.wait()

    mailer.fault = slowly
    await emit(postgres, schema, 1)
    await second.look()
    reading = asyncio.create_task(mailer.read())
    await began.wait()
    await second.reader.work()
    assert (await second.noted(), second.committed) == ([], 0)
    go_on.set()
    await reading
    await emit(postgres, schema, 2)
    await second.read()
    await mailer.read()
    assert await mailer.noted() == [1, 2]


async def test_a_cursor_that_stands_still_is_seen_in_the_metric(postgres, schema, mailer) -> None:
    def unread_s() -> float:
        labels = {"source": schema, "reader": "mailer"}
        return REGISTRY.get_sample_value("onsale_events_unread_seconds", labels) or 0

    await emit(postgres, schema, 1)
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '10 minutes'")
    mailer.fault = fail
    with pytest.raises(RuntimeError):
        await mailer.read()
    assert 600 <= unread_s() < 700
    mailer.fault = None
    await mailer.read()
    assert unread_s() == 0


async def test_a_new_one_begins_after_what_is_published(postgres, schema, mailer, relay) -> None:
    await emit(postgres, schema, 1)
    await relay_all(relay)
    await emit(postgres, schema, 2)
    new = Mailer(postgres, schema, "new")
    await new.reader.begin()
    await new.read()
    assert await new.noted() == [2]


async def test_a_reader_ahead_of_all_events_is_set_anew(postgres, schema, mailer) -> None:
    """The rows and their sequence were restored from a copy that is older than the cursor."""
    await emit(postgres, schema, 1)
    await execute(postgres, f"UPDATE {schema}.outbox_cursor SET id = 1000")
    await mailer.reader.begin()
    await mailer.read()
    assert await mailer.noted() == [1]
    await mailer.reader.begin()
    assert await position(mailer) == 1, "a start moves no cursor that is right"


async def test_publishing_again_moves_no_reader(postgres, log, schema, mailer, relay) -> None:
    await emit(postgres, schema, 1)
    await mailer.read()
    await relay_all(relay)
    await set_back(postgres, schema, 3600, reason="a test")
    await relay_all(relay)
    await mailer.read()
    assert (await logged(log), await mailer.noted()) == ([1, 1], [1])


async def test_old_events_wait_for_a_reader_for_a_week(postgres, log, schema, mailer) -> None:
    async def age(days: int) -> None:
        await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '{days} days'")

    outbox = Outbox(postgres, log, schema)
    for number in (1, 2):
        await emit(postgres, schema, number)
        if number == 1:
            await mailer.read()
    await relay_all(Process(outbox))
    await outbox.delete_old()
    await age(6)
    assert await outbox.delete_old() == 1, "the first, which was read"
    await age(8)
    assert await outbox.delete_old() == 1
