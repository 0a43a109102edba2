"""The log in Redis: it is the default, and gets its last hour of events again after it lost its data."""

import asyncio

import pytest

from shared.messaging import republish
from shared.messaging.log import START, LogRefused, RedisStreams, log_stream, open_log
from shared.messaging.relay import Outbox
from shared.messaging.republish import Republisher
from shared.process.settings import ServiceSettings
from shared.redis.client import ANSWERED_WITHIN_S, connect, identity
from tests.shared.messaging.conftest import emit, logged
from tests.shared.messaging.test_relay import Process, execute, relay_all


async def test_without_a_url_the_log_is_in_the_services_own_redis(redis) -> None:
    async with open_log(ServiceSettings(), redis) as log:
        assert isinstance(log, RedisStreams)
    await redis.ping()


@pytest.mark.parametrize("url", ["nats://a", "amqp://a"])
async def test_without_the_feature_only_redis_is_possible(url: str, redis) -> None:
    with pytest.raises(LogRefused, match=rf"^ONSALE_EVENT_LOG_URL must be redis://…, not {url[:4]}://…$"):
        async with open_log(ServiceSettings(event_log_url=url, features_off="event_logs"), redis):
            pass


async def test_a_reader_may_wait_for_longer_than_a_client_waits_for_an_answer(redis_url: str) -> None:
    loop, client = asyncio.get_running_loop(), connect(redis_url)
    async with open_log(ServiceSettings(), client) as log:
        begun_s = loop.time()
        assert await log.read({log_stream("quiet"): START}, count=1, wait_s=ANSWERED_WITHIN_S + 0.2) == []
        assert loop.time() - begun_s >= ANSWERED_WITHIN_S
    await client.aclose()


# -- republishing ------------------------------------------------------------------------------------------------------


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
