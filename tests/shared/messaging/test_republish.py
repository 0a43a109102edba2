"""The republisher: a log that lost its data gets the last hour of events again; any other log is left alone."""

import pytest

from shared.messaging import republish
from shared.messaging.redis_streams import log_stream
from shared.messaging.relay import Outbox
from shared.messaging.republish import Republisher
from shared.redis.client import identity
from tests.shared.messaging.conftest import emit, logged
from tests.shared.messaging.test_relay import Process, execute, relay_all


def mark(stream: str, schema: str) -> str:
    """The key that names the Redis process to which this outbox was published."""
    return f"{stream}:published_to:{schema}"


@pytest.fixture
def relay(postgres, log, schema) -> Process:
    return Process(Outbox(postgres, log, schema))


@pytest.fixture
async def republisher(relay: Process, postgres, redis, schema) -> Republisher:
    """A republisher of a Redis that has all published events: one is of two hours ago."""
    for stream in republish.NAMES:
        await redis.set(mark(stream, schema), (await identity(redis, stream)).text())
    await emit(postgres, schema, 0)
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '2 hours'")
    await emit(postgres, schema, 1)
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = now() - interval '1 minute' WHERE id = 2")
    await emit(postgres, schema, 2)
    await relay_all(relay)
    return Republisher(postgres, redis, schema)


async def test_nothing_is_published_again_while_redis_stays_the_same(republisher: Republisher) -> None:
    assert [await republisher.check(), await republisher.check()] == [False, False]


@pytest.mark.parametrize("lost", ["everything", "the last of it"])
async def test_another_redis_gets_the_events_again(
    republisher: Republisher, relay: Process, redis, log, schema, lost: str
) -> None:
    arena_mark = mark(log_stream("arena"), schema)
    await redis.flushall()
    if lost == "the last of it":
        await redis.set(arena_mark, "another/process")
    assert await republisher.check()
    assert await redis.get(arena_mark) == (await identity(redis, arena_mark)).text().encode()
    await relay_all(relay)
    assert await logged(log) == [1, 2]
    assert not await republisher.check()


async def test_a_process_that_switches_later_publishes_its_last_seconds_again(
    republisher: Republisher, relay: Process, redis, log
) -> None:
    """Another was first to notice, and this one went on to write to the old Redis."""
    assert not await republisher.check()
    republisher._processes[log_stream("arena")] = "old/process"
    await redis.delete(log_stream("arena"))
    assert await republisher.check()
    await relay_all(relay)
    assert await logged(log) == [2]
    assert not await republisher.check()


async def test_the_hour_is_counted_back_from_what_was_published_last(
    republisher: Republisher, relay: Process, postgres, redis, log, schema
) -> None:
    """The log was away, and what it got afterwards was written long before."""
    await execute(postgres, f"UPDATE {schema}.outbox_batch SET written_at = written_at - interval '5 hours'")
    await redis.flushall()
    assert await republisher.check()
    await relay_all(relay)
    assert await logged(log) == [1, 2]
