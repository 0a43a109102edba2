"""Tell: what was committed reaches the log, in order, at least once; what was rolled back never does."""

from pathlib import Path

import pytest
from sqlalchemy import text

from shared.contracts.events import Event
from shared.messaging.log import START
from shared.messaging.outbox import Relay, emit_events, outbox_tables
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.postgres.engine import metadata


@pytest.fixture
async def tables(postgres):
    outbox, lease = outbox_tables(tables := metadata("outbox_test"))
    async with postgres.begin() as connection:
        await connection.execute(text("CREATE SCHEMA outbox_test"))
        await connection.run_sync(tables.create_all)
    return outbox, lease


def event(number: int) -> Event:
    return Event(type="order.confirmed", event_id="arena", aggregate=f"order:{number}", version=number)


@pytest.fixture
def log(redis) -> RedisStreams:
    return RedisStreams(redis, length_max=1000)


async def logged(log) -> list[int]:
    entries = await log.read({log_stream("arena"): START}, count=100, wait_s=0)
    return [Event.model_validate_json(entry.body).version for entry in entries]


async def test_events_leave_with_their_transaction_in_order(postgres, log, tables) -> None:
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1), event(2)])
    async with postgres.connect() as connection:
        await emit_events(connection, tables[0], [event(3)])
        await connection.rollback()
    relay = Relay(postgres, log, *tables)
    assert await relay.relay_batch() == 2
    assert await relay.relay_batch() == 0
    assert await logged(log) == [1, 2]


async def test_a_row_that_commits_late_is_not_skipped(postgres, log, tables) -> None:
    relay = Relay(postgres, log, *tables)
    async with postgres.connect() as slow:
        await emit_events(slow, tables[0], [event(1)])
        async with postgres.begin() as quick:
            await emit_events(quick, tables[0], [event(2)])
        await relay.relay_batch()
        await slow.commit()
    await relay.relay_batch()
    assert await logged(log) == [2, 1]


async def test_one_relay_works_at_a_time_and_another_takes_over(postgres, log, tables) -> None:
    first, second = Relay(postgres, log, *tables), Relay(postgres, log, *tables)
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1)])
    await first.relay_batch()
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(2)])
    assert await second.relay_batch() == 0
    async with postgres.begin() as connection:
        await connection.execute(text("UPDATE outbox_test.outbox_lease SET until = now() - interval '1 second'"))
    assert await second.relay_batch() == 1
    assert await logged(log) == [1, 2]


async def test_an_event_is_told_again_when_the_mark_was_lost(postgres, log, tables, monkeypatch) -> None:
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1)])
    relay = Relay(postgres, log, *tables)
    monkeypatch.setattr(relay, "_mark", _nothing)  # the process died between log and mark
    await relay.relay_batch()
    await relay.relay_batch()
    assert await logged(log) == [1, 1]


async def _nothing(ids: list[int]) -> None:
    return None


async def test_a_log_that_lost_what_it_had_is_told_again_as_the_documents_say(postgres, redis, log, tables) -> None:
    relay, page = Relay(postgres, log, *tables), Path(__file__).parents[3] / "docs" / "event-log.md"
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1), event(2)])
    await relay.relay_batch()
    await redis.flushall()
    async with postgres.begin() as connection:
        again = page.read_text().split("```sql\n")[1].split(";")[0]
        await connection.execute(text(again.replace("orders.", "outbox_test.")))
    assert await relay.relay_batch() == 2
    assert await logged(log) == [1, 2]


async def test_old_rows_are_forgotten_and_fresh_ones_kept(postgres, log, tables) -> None:
    async with postgres.begin() as connection:
        await emit_events(connection, tables[0], [event(1), event(2)])
    relay = Relay(postgres, log, *tables)
    await relay.relay_batch()
    async with postgres.begin() as connection:
        await connection.execute(
            text("UPDATE outbox_test.outbox SET published_at = now() - interval '25 hours' WHERE id = 1")
        )
    assert await relay.delete_published() == 1
