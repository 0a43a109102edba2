"""The gauges of a line say what its rows and keys say."""

import asyncio
from functools import partial

from prometheus_client import REGISTRY
from sqlalchemy import text

from services.queue import gauges
from shared.process.engine_gauges import refresh_engine_gauges
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"event_id": EVENT, **labels}) or 0.0


async def refresh(queue: Queue) -> None:
    await gauges.refresh_gauges(queue.state.gatekeeper, queue.db, queue.redis)


async def test_each_call_is_counted_with_the_time_its_fan_waited(queue: Queue) -> None:
    await queue.open(fans=20, rate_per_s=0)
    await queue.sql("UPDATE queue.place SET joined_at = joined_at - interval '40 seconds'")
    called, waited = value("queue_called_total"), value("queue_wait_seconds_sum")
    await queue.configure(rate_per_s=1000)
    await queue.tick()
    calls = len(await queue.called())
    assert value("queue_called_total") - called == calls > 0
    assert calls * 40 <= value("queue_wait_seconds_sum") - waited < calls * 50


async def test_the_room_is_open_only_while_it_calls(queue: Queue) -> None:
    await queue.open(fans=1)
    await queue.tick()
    assert value("queue_room_open") == 1
    await queue.transition("pause")
    assert value("queue_room_open") == 0


async def test_the_error_of_a_position_is_those_before_it_who_left(queue: Queue) -> None:
    await queue.open(fans=50, rate_per_s=0)
    await queue.tick()
    await refresh(queue)
    assert value("queue_position_error") == 0
    await queue.leave(*((seq, f"fan-{seq}") for seq in range(1, 51)))
    await refresh(queue)
    assert 1 <= value("queue_position_error") <= 50, "all before the sample have left"


async def test_the_memory_of_a_line_is_that_of_its_keys(queue: Queue) -> None:
    await queue.open(fans=1)
    await queue.tick()
    await refresh(queue)
    small = value("queue_line_memory_bytes")
    await queue.redis.setbit(f"queue:{{{EVENT}}}:1:0:done", 8 * 100_000, 1)
    await refresh(queue)
    assert value("queue_line_memory_bytes") - small > 90_000 > small > 0


async def test_the_engines_show_their_memory_and_who_waits_for_a_lock(queue: Queue) -> None:
    await queue.open("ann")
    await refresh_engine_gauges("queue", queue.db, queue.redis)
    where = queue.redis.connection_pool.connection_kwargs
    node = {"node": f"{where['host']}:{where['port']}"}
    assert (REGISTRY.get_sample_value("onsale_redis_memory_bytes", node) or 0) > 100_000
    assert REGISTRY.get_sample_value("onsale_redis_memory_limit_bytes", node) is not None
    locks = text("SELECT pg_advisory_lock(1), set_config('application_name', 'onsale-queue', false)")
    async with queue.db.connect() as holds, queue.db.connect() as waits:
        await waits.execute(text("SELECT set_config('application_name', 'onsale-queue', false)"))
        await holds.execute(locks)
        waiting = asyncio.create_task(waits.execute(locks))
        await wait_until(partial(shows_waiting, queue, 1))
        await holds.execute(text("SELECT pg_advisory_unlock(1)"))
        await waiting
        await wait_until(partial(shows_waiting, queue, 0))
        await waits.execute(text("SELECT pg_advisory_unlock(1)"))


async def shows_waiting(queue: Queue, expected: int) -> bool:
    await refresh_engine_gauges("queue", queue.db, queue.redis)
    return REGISTRY.get_sample_value("onsale_database_lock_waiting", {"service": "queue"}) == expected
