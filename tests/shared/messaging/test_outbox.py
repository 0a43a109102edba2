"""The outbox and its relay: committed events reach the log in order, at least once; rolled back ones never do."""

from pathlib import Path

import pytest
from sqlalchemy import text

from shared.concurrency.background import ACTIVITY
from shared.messaging.outbox import Relay, emit_events
from tests.shared.messaging.conftest import emit, event, logged


@pytest.fixture
def relay(postgres, log, tables) -> Relay:
    return Relay(postgres, log, *tables)


async def execute(postgres, statement: str) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text(statement))


async def test_only_committed_events_are_published_and_in_order(postgres, log, tables, relay) -> None:
    await emit(postgres, tables, 1, 2)
    async with postgres.connect() as connection:
        await emit_events(connection, tables[0], [event(3)])
        await connection.rollback()
    assert await relay.relay_batch() == 2
    assert await relay.relay_batch() == 0
    assert await logged(log) == [1, 2]


async def test_a_row_that_commits_late_is_not_skipped(postgres, log, tables, relay) -> None:
    async with postgres.connect() as slow:
        await emit_events(slow, tables[0], [event(1)])
        await emit(postgres, tables, 2)
        await relay.relay_batch()
        await slow.commit()
    await relay.relay_batch()
    assert await logged(log) == [2, 1]


async def test_one_relay_works_at_a_time_and_another_takes_over_its_lease(postgres, log, tables, relay) -> None:
    second = Relay(postgres, log, *tables)
    await emit(postgres, tables, 1)
    await relay.relay_batch()
    await emit(postgres, tables, 2)
    assert await second.relay_batch() == 0
    await execute(postgres, f"UPDATE {tables[0].schema}.outbox_lease SET until = now() - interval '1 second'")
    assert await second.relay_batch() == 1
    assert await logged(log) == [1, 2]


async def test_an_event_is_published_again_when_the_relay_died_before_its_mark(
    postgres, log, tables, relay, monkeypatch
) -> None:
    async def die(ids: list[int]) -> None:
        """The process died between log and mark."""

    await emit(postgres, tables, 1)
    monkeypatch.setattr(relay, "_mark", die)
    await relay.relay_batch()
    await relay.relay_batch()
    assert await logged(log) == [1, 1]


async def test_the_documented_statement_publishes_again_after_the_log_lost_everything(
    postgres, redis, log, tables, relay
) -> None:
    page = Path(__file__).parents[3] / "docs" / "operate" / "event-log.md"
    await emit(postgres, tables, 1, 2)
    await relay.relay_batch()
    await redis.flushall()
    publish_again = page.read_text().split("```sql\n")[1].split(";")[0]
    await execute(postgres, publish_again.replace("orders.", f"{tables[0].schema}."))
    assert await relay.relay_batch() == 2
    assert await logged(log) == [1, 2]


async def test_old_published_rows_are_deleted_and_fresh_ones_kept(postgres, tables, relay) -> None:
    await emit(postgres, tables, 1, 2)
    await relay.relay_batch()
    outbox = f"{tables[0].schema}.outbox"
    await execute(postgres, f"UPDATE {outbox} SET published_at = now() - interval '25 hours' WHERE id = 1")
    assert await relay.delete_published() == 1


async def test_an_event_wakes_the_relay_of_its_process(postgres, tables, silence) -> None:
    silence()
    async with postgres.connect() as connection:
        await emit_events(connection, tables[0], [])
        assert ACTIVITY.silent
        await emit_events(connection, tables[0], [event(1)])
    assert not ACTIVITY.silent


async def test_a_relay_stays_awake_while_an_event_waits_for_a_lease_that_another_has(
    postgres, log, tables, relay, silence
) -> None:
    second = Relay(postgres, log, *tables)
    await emit(postgres, tables, 1)
    await second.relay_batch()
    silence()
    await relay.run()
    assert ACTIVITY.silent
    await emit(postgres, tables, 2)
    silence()
    await relay.run()
    assert not ACTIVITY.silent
