"""The outbox and its relay: committed events reach the log in order, at least once; rolled back ones never do."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.concurrency.background import Loops, Quiet
from shared.messaging import relay as relay_module
from shared.messaging.log import START, LogUnavailable, PendingEvent, RedisStreams
from shared.messaging.outbox import emit_events
from shared.messaging.relay import BYTES_MAX, QUIET_S, Outbox, Relay
from shared.postgres.engine import connect
from shared.postgres.settings import PostgresSettings, Waits
from tests.shared.messaging.conftest import emit, event, logged, new_schema
from tests.support.wait import wait_until

IMPATIENT = Waits(pool_wait_s=0.1)


class Process:
    """The relay of a process with these outboxes, which a test moves."""

    def __init__(self, *outboxes: Outbox) -> None:
        self.outboxes, self._relay = outboxes, Relay(*outboxes)

    async def look(self) -> Quiet | None:
        """One look, and what each outbox publishes after it."""
        found = await self._relay.run()
        for outbox in self.outboxes:
            await outbox.publish()
        return found

    async def relay(self) -> bool:
        """Whether there were events that waited, whoever publishes them."""
        return await self.look() is None


@pytest.fixture
def outbox(postgres: AsyncEngine, log: RedisStreams, schema: str) -> Outbox:
    return Outbox(postgres, log, schema)


@pytest.fixture
def relay(outbox: Outbox) -> Process:
    return Process(outbox)


async def execute(postgres: AsyncEngine, statement: str) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text(statement))


async def fetch(postgres: AsyncEngine, query: str) -> int:
    async with postgres.connect() as connection:
        return int((await connection.execute(text(query))).scalar_one())


def cursor(postgres: AsyncEngine, schema: str):
    return fetch(postgres, f"SELECT coalesce(max(id), 0) FROM {schema}.outbox_cursor WHERE name = 'relay'")


async def relay_all(relay: Process) -> None:
    """Until nothing waits."""

    async def is_empty() -> bool:
        return not await relay.relay()

    await wait_until(is_empty)


async def test_only_committed_events_are_published_and_in_order(postgres, log, schema, relay) -> None:
    await emit(postgres, schema, 1, 2)
    async with postgres.connect() as connection:
        await emit_events(connection, schema, [event(3)])
        await connection.rollback()
    await emit(postgres, schema, 4)
    await relay_all(relay)
    assert await logged(log) == [1, 2, 4]


async def test_the_events_of_a_transaction_are_one_row(postgres, schema) -> None:
    await emit(postgres, schema, 1, 2, 3)
    assert await fetch(postgres, f"SELECT count(*) FROM {schema}.outbox_batch") == 1


async def test_a_message_is_the_event_as_its_service_wrote_it(postgres, log, schema, relay) -> None:
    """The text of the JSON document, as the log has had it since 0.1.0."""
    await emit(postgres, schema, 1)
    await relay_all(relay)
    stored = f"SELECT events -> 0 FROM {schema}.outbox_batch"
    async with postgres.connect() as connection:
        written = (await connection.execute(text(f"SELECT CAST(({stored}) AS text)"))).scalar_one()
    (entry,) = await log.read(dict.fromkeys(await log.streams(schema), START), count=10, wait_s=0)
    assert entry.body.decode() == written
    assert written.startswith('{"id": "arena1", "type": "order.confirmed", "actor": "system", "after": null')


async def test_an_event_whose_lower_id_commits_later_is_not_skipped(postgres, log, schema, relay) -> None:
    """The two sessions that an id alone would lose an event of: the cursor waits for the first one."""
    async with postgres.connect() as slow:
        await emit_events(slow, schema, [event(1)])
        await emit(postgres, schema, 2)
        assert await relay.relay()
        assert await logged(log) == []
        await slow.commit()
    await relay_all(relay)
    assert await logged(log) == [1, 2]


async def test_a_row_that_two_transactions_change_has_its_events_in_order(postgres, log, schema, relay) -> None:
    """The second to change it began first, and another transaction began between them and still runs."""
    await execute(postgres, f"CREATE TABLE {schema}.place AS SELECT id FROM generate_series(1, 3) id")
    lock = text(f"SELECT id FROM {schema}.place WHERE id = :id FOR UPDATE")
    async with postgres.connect() as earlier, postgres.connect() as between, postgres.connect() as later:
        await earlier.execute(lock, {"id": 1})
        await between.execute(lock, {"id": 3})
        await later.execute(lock, {"id": 2})
        await emit_events(later, schema, [event(1)])
        waiting = asyncio.create_task(_change_second(earlier, lock, schema))
        await later.commit()
        await waiting
        await relay.relay()
        await between.commit()
    await relay_all(relay)
    assert await logged(log) == [1, 2]


async def _change_second(connection: AsyncConnection, lock, schema: str) -> None:
    await connection.execute(lock, {"id": 2})
    await emit_events(connection, schema, [event(2)])
    await connection.commit()


async def test_a_transaction_has_its_transaction_id_before_it_draws_an_id(postgres, schema) -> None:
    """Otherwise the relay might take the id for one that will never be. A sequence itself takes one for each 32nd."""
    default = "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = CAST(:t AS regclass) AND adnum = 1"
    async with postgres.connect() as connection:
        drawn = (await connection.execute(text(default), {"t": f"{schema}.outbox_batch"})).scalar_one()
    await execute(postgres, f"SELECT {drawn}")
    async with postgres.connect() as connection:
        await connection.execute(text(f"SELECT {drawn}"))
        assert (await connection.execute(text("SELECT pg_current_xact_id_if_assigned()::text"))).scalar_one()


async def test_a_cursor_that_waits_is_seen_in_the_metric(postgres, log, schema, relay) -> None:
    def behind_s() -> float:
        return REGISTRY.get_sample_value("onsale_event_log_behind_seconds", {"source": schema}) or 0

    async with postgres.connect() as slow:
        await emit_events(slow, schema, [event(1)])
        await emit(postgres, schema, 2)
        await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '3 seconds'")
        await relay.relay()
        assert 3 <= behind_s() < 30
        await slow.rollback()
    await relay_all(relay)
    assert behind_s() == 0


class DyingLog(RedisStreams):
    """Its process dies after publishing, before the cursor moves."""

    dies = True

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        await super().publish(source, batch)
        if self.dies:
            raise LogUnavailable("died")


async def test_a_batch_is_published_again_after_a_crash_before_the_cursor_moved(postgres, redis, schema) -> None:
    log = DyingLog(redis, length_max=1000)
    await emit(postgres, schema, 1, 2)
    with pytest.raises(LogUnavailable):
        await relay_all(Process(Outbox(postgres, log, schema)))
    log.dies = False
    await relay_all(Process(Outbox(postgres, log, schema)))
    assert await logged(log) == [1, 2, 1, 2]


class SlowLog(RedisStreams):
    """Publishes when it is told to."""

    def __init__(self, redis) -> None:
        super().__init__(redis, length_max=100_000)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        self.began.set()
        await self.go_on.wait()
        await super().publish(source, batch)


async def test_one_relay_publishes_at_a_time(postgres, redis, log, schema, relay) -> None:
    first = Process(Outbox(postgres, slow := SlowLog(redis), schema))
    await emit(postgres, schema, 1, 2)
    publishing = asyncio.create_task(relay_all(first))
    await slow.began.wait()
    await emit(postgres, schema, 3)
    assert await relay.relay(), "events wait, for the other"
    assert await logged(log) == []
    slow.go_on.set()
    await publishing
    await relay_all(relay)
    assert await logged(log) == [1, 2, 3]


async def _relay_for_ever(relay: Process) -> None:
    while True:
        await relay.relay()


async def _has_reached(postgres: AsyncEngine, schema: str, last: int) -> bool:
    return await cursor(postgres, schema) == last


async def test_two_processes_publish_every_event_once_between_them(postgres, log, schema, relay) -> None:
    running = [asyncio.create_task(_relay_for_ever(one)) for one in (relay, Process(Outbox(postgres, log, schema)))]
    for number in range(60):
        await emit(postgres, schema, number)
    await wait_until(lambda: _has_reached(postgres, schema, 60))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await relay_all(relay)
    assert await logged(log) == list(range(60))


async def test_the_lock_of_a_relay_that_fell_silent_is_free_after_a_while(
    postgres, redis, log, schema, relay, monkeypatch
) -> None:
    monkeypatch.setattr(relay_module, "LOCK_S", 0.2)
    silent = Process(Outbox(postgres, slow := SlowLog(redis), schema))
    await emit(postgres, schema, 1)
    publishing = asyncio.create_task(relay_all(silent))
    await slow.began.wait()

    async def has_taken_over() -> bool:
        await relay.relay()
        return await logged(log) == [1]

    await wait_until(has_taken_over)
    slow.go_on.set()
    with pytest.raises(Exception):  # noqa: B017, PT011 - the server ended its connection
        await publishing
    assert await cursor(postgres, schema) == 1


async def test_the_end_of_a_batch_does_not_undo_a_move_of_the_cursor(postgres, redis, log, schema, relay) -> None:
    await emit(postgres, schema, 1)
    await relay_all(relay)
    await emit(postgres, schema, 2)
    publishing = asyncio.create_task(Process(Outbox(postgres, slow := SlowLog(redis), schema)).relay())
    await slow.began.wait()
    await execute(postgres, f"UPDATE {schema}.outbox_cursor SET id = 0")
    slow.go_on.set()
    await publishing
    await relay_all(relay)
    assert await logged(log) == [1, 2, 1, 2]


async def test_events_that_wait_need_little_memory(postgres, redis, schema) -> None:
    """50,000, which are 25 MB as text, in batches of ten."""

    class Counting(RedisStreams):
        count, bytes_max = 0, 0

        async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
            self.count += len(batch)
            self.bytes_max = max(self.bytes_max, sum(len(event.body) for event in batch))

    await execute(
        postgres,
        f"""
        INSERT INTO {schema}.outbox_batch (events)
        SELECT jsonb_agg(jsonb_build_object('id', n, 'event_id', 'arena', 'type', 't', 'after',
            (SELECT jsonb_object_agg(k, md5((n * k)::text)) FROM generate_series(1, 12) k)))
        FROM generate_series(1, 50000) n GROUP BY n / 10""",
    )
    log = Counting(redis, length_max=1)
    tracemalloc.start()
    await relay_all(Process(Outbox(postgres, log, schema)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.count == 50_000
    assert log.bytes_max < 4 * BYTES_MAX
    assert peak < 8_000_000


async def test_the_documented_statement_publishes_again_after_the_log_lost_everything(
    postgres, redis, log, schema, relay
) -> None:
    page = Path(__file__).parents[3] / "docs" / "operate" / "event-log.md"
    publish_again = page.read_text().split("```sql\n")[1].split(";")[0].replace("orders.", f"{schema}.")
    await emit(postgres, schema, 1)
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '2 hours'")
    await emit(postgres, schema, 2, 3)
    await relay_all(relay)
    await redis.flushall()
    await execute(postgres, publish_again)
    await relay_all(relay)
    assert await logged(log) == [2, 3]
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '2 hours'")
    await execute(postgres, f"UPDATE {schema}.outbox_cursor SET id = 0")
    await execute(postgres, publish_again)
    assert await cursor(postgres, schema) == 0, "it never moves forward over what was not published"


async def test_a_cursor_ahead_of_all_events_is_set_anew(postgres, log, schema, relay) -> None:
    """The rows and their sequence were restored from a copy that is older than the cursor."""
    await emit(postgres, schema, 1)
    await execute(postgres, f"INSERT INTO {schema}.outbox_cursor VALUES ('relay', 1000)")
    await relay_all(relay)
    await emit(postgres, schema, 2)
    await relay_all(relay)
    assert await logged(log) == [1, 2]


async def test_old_published_batches_are_deleted_and_others_kept(postgres, schema, outbox, relay) -> None:
    def kept() -> Coroutine[Any, Any, int]:
        return fetch(postgres, f"SELECT array_length(array_agg(id), 1) FROM {schema}.outbox_batch")

    for number in range(4):
        await emit(postgres, schema, number)
    await relay_all(relay)
    await execute(
        postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '25 hours' WHERE id IN (1, 2)"
    )
    assert await outbox.delete_old() == 0, "what was published just now may still be lost"
    await emit(postgres, schema, 5)
    assert await outbox.delete_old() == 2
    assert await kept() == 3
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '25 hours'")
    await outbox.delete_old()
    assert await kept() == 1, "what was not published yet"


async def test_an_event_wakes_the_loops_of_its_service(postgres, log, schema, relay, woken) -> None:
    assert await relay.look() == Quiet(QUIET_S)
    async with postgres.begin() as connection:
        await emit_events(connection, schema, [])
        assert not woken
        await emit_events(connection, schema, [event(1)])
        assert woken == [schema]
        assert await relay.look() is None, "it waits for the transaction that has drawn an id"
    assert await relay.look() is None
    assert await logged(log) == [1]
    assert await relay.look() == Quiet(QUIET_S)


async def test_a_relay_is_not_quiet_while_an_event_waits_for_another_process(postgres, redis, schema, relay) -> None:
    first = Process(Outbox(postgres, slow := SlowLog(redis), schema))
    assert await relay.look() == Quiet(QUIET_S)
    await emit(postgres, schema, 1)
    publishing = asyncio.create_task(relay_all(first))
    await slow.began.wait()
    assert await relay.look() is None
    slow.go_on.set()
    await publishing


class Services:
    """Services of a process with an outbox each, in one database."""

    def __init__(self, postgres: AsyncEngine, redis: Redis, schemas: Sequence[str]) -> None:
        self._postgres, self._redis, self.schemas = postgres, redis, schemas
        self.loops: dict[str, Loops] = {}

    async def start(self, schema: str, log: RedisStreams | None = None, db: AsyncEngine | None = None) -> None:
        log = log or RedisStreams(self._redis, length_max=1000)
        self.loops[schema] = loops = Loops(schema)
        outbox = Outbox(db or self._postgres, log, schema, database=str(self.schemas))
        loops.keep(outbox.run, name=f"{schema}.outbox")

    async def emit(self, *numbers: int) -> None:
        """The same event of each."""
        for schema in self.schemas:
            await emit(self._postgres, schema, *numbers)

    async def have_published(self, schema: str, last: int) -> None:
        await wait_until(lambda: _has_reached(self._postgres, schema, last))


@pytest.fixture
async def services(postgres: AsyncEngine, redis: Redis, schema: str) -> AsyncIterator[Services]:
    opened = Services(postgres, redis, [schema, await new_schema(postgres), await new_schema(postgres)])
    yield opened
    for loops in opened.loops.values():
        await loops.stop()


def relays() -> int:
    return sum(task.get_name() == "relay" for task in asyncio.all_tasks())


async def test_one_relay_serves_all_services_of_a_process_until_the_last_ends(services: Services, log) -> None:
    """Also when the service ends over whose pool it looks."""
    for schema in services.schemas:
        await services.start(schema)
    await services.emit(1)
    for schema in services.schemas:
        await services.have_published(schema, 1)
    assert relays() == 1
    assert await logged(log) == [1, 1, 1]
    first, *others = services.schemas
    await services.loops[first].stop()
    await services.emit(2)
    for schema in others:
        await services.have_published(schema, 2)
    assert await logged(log) == [1, 1, 1, 2, 2]
    for schema in others:
        await services.loops[schema].stop()
    assert relays() == 0


class RefusingLog(RedisStreams):
    """Refuses all events."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, length_max=1000)

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        raise LogUnavailable(source)


@pytest.mark.parametrize("broken", [RefusingLog, SlowLog])
async def test_a_service_whose_events_the_log_does_not_take_holds_up_no_other(
    services: Services, redis: Redis, broken: type[RefusingLog | SlowLog]
) -> None:
    first, *others = services.schemas
    await services.start(first, broken(redis))
    for schema in others:
        await services.start(schema)
    for number in (1, 2, 3):
        await services.emit(number)
        for schema in others:
            await services.have_published(schema, number)
    assert await cursor(services._postgres, first) == 0


async def test_a_service_whose_pool_has_no_connection_holds_up_no_other(services: Services, postgres_url: str) -> None:
    first, *others = services.schemas
    full = connect(PostgresSettings(postgres_url=postgres_url, postgres_pool_max=1), name="queue", waits=IMPATIENT)
    async with full.connect():
        await services.start(first, db=full)
        for schema in others:
            await services.start(schema)
        await services.emit(1)
        for schema in others:
            await services.have_published(schema, 1)
        await services.loops.pop(first).stop()
    await full.dispose()
