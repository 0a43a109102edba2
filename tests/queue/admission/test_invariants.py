"""What is said of a line: its invariants, one broken for each fault that is made on purpose, and its gauges."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from services.queue.admission.publisher import refresh_gauges
from services.queue.line.invariants import allowed, allowed_since
from shared.process.engine_gauges import refresh_engine_gauges
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until

FAULTS = {
    "3 no number": "UPDATE queue.place SET join_seq = 99 WHERE join_seq = 3",
    "4 every call": "INSERT INTO queue.admission VALUES ('show', 1, 0, 77, 1, 'called', 1, NULL, NULL)",
    "5 nobody is called": "UPDATE queue.lane SET head_seq = 0",
    "4 slots": "UPDATE queue.admission SET state = 'missed' WHERE join_seq = 1",
}


async def broken(queue: Queue) -> list[str]:
    return [violation.invariant for violation in await queue.violations()]


@pytest.mark.parametrize("invariant", FAULTS)
async def test_a_broken_invariant_is_reported(queue: Queue, invariant: str) -> None:
    await queue.open_and_call(fans=3, max_active=2)
    await queue.claim((1, "fan-1"))
    assert await broken(queue) == []
    await queue.sql(FAULTS[invariant])
    assert any(name.startswith(invariant) for name in await broken(queue))


async def test_a_slot_known_to_redis_alone_is_reported(queue: Queue) -> None:
    await queue.open_and_call(fans=2)
    await queue.redis.zadd(f"queue:{{{EVENT}}}:1:active", {"0:2000": 1})
    assert any(name.startswith("4 slots") for name in await broken(queue))


async def test_a_slot_that_is_just_being_freed_is_not_reported(queue: Queue) -> None:
    """A purchase ends its place in the database, and then frees its slot."""
    await queue.open_and_call(fans=2, max_active=2)
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'completed' WHERE join_seq = 1")
    async with asyncio.TaskGroup() as group:
        found = group.create_task(broken(queue))
        await asyncio.sleep(0.25)
        await queue.redis.zrem(f"queue:{{{EVENT}}}:1:called", "0:1")
    assert found.result() == []


async def test_an_empty_redis_is_reported(queue: Queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    assert await broken(queue) == ["3 Redis holds the line"]


# -- the allowed number of calls ---------------------------------------------------------------------------------------


START = datetime(2027, 1, 1, tzinfo=UTC)


def entry(after_s: float, action: str = "change", **facts: Any) -> tuple[datetime, str, dict[str, Any]]:
    return START + timedelta(seconds=after_s), action, {"state": "open", "rate_per_s": 10, "burst": 50, **facts}


def test_the_bound_is_the_rate_over_time_plus_the_burst_and_manual_admissions() -> None:
    until = START + timedelta(seconds=100)
    assert allowed([entry(0)], until) == 10 * 101 + 50
    assert allowed([entry(0), entry(40, state="paused"), entry(90, state="draining")], until) == 10 * 41 + 10 * 11 + 50
    assert allowed([entry(0, state="draft"), entry(60, "admit", state="paused", admit=7)], until) == 7 + 50
    assert allowed([], until) == 0


async def beyond_allowed(queue: Queue) -> list[str]:
    return [violation.detail for violation in await queue.violations() if "allow" in violation.invariant]


async def test_calls_beyond_the_allowed_number_are_reported(queue: Queue) -> None:
    await queue.open(fans=40, rate_per_s=1, burst=5)
    await queue.tick(4)
    assert await beyond_allowed(queue) == []
    await queue.write_room_hash({"tokens": 40, "burst": 99, "token_cap": 99})
    await queue.tick(0.2)
    assert len(await queue.called()) == 40
    [detail] = await beyond_allowed(queue)
    assert "40 calls" in detail


def test_a_lower_rate_cuts_the_saved_calls_in_proportion() -> None:
    until = START + timedelta(seconds=100)
    fast = entry(0, rate_per_s=200, burst=200)
    slow = allowed_since([fast, entry(60, rate_per_s=1, burst=200)], until)
    assert slow[1] == 1 + 41, "200 saved at 200 a second took a second: at 1 a second that is one call"
    stopped = allowed_since([fast, entry(60, rate_per_s=0, burst=200), entry(80, rate_per_s=5, burst=200)], until)
    assert stopped[1:] == [21 * 5, 21 * 5]
    faster = allowed_since([entry(0, rate_per_s=1, burst=30), entry(60, rate_per_s=10, burst=20)], until)
    assert faster[1] == 20 + 41 * 10, "a new burst bounds what was saved"


@pytest.mark.parametrize(("rate_per_s", "most"), [(0.0, 0), (1.0, 3)])
async def test_a_lower_rate_cuts_saved_tokens_and_the_invariant_checks_it(
    queue: Queue, rate_per_s: float, most: int
) -> None:
    await queue.open(rate_per_s=200, burst=200, max_active=500)
    for _ in range(8):
        await queue.tick(0.4)
    assert float((await queue.room_hash())["tokens"]) == 200, "no fan waited to be called"
    await queue.configure(rate_per_s=rate_per_s)
    await queue.tick(1.5)
    await queue.join_fans(40)
    await queue.tick(0.2)
    assert len(await queue.called()) <= most
    backdate = "UPDATE queue.audit_log SET at = at - interval '2 seconds'"  # the test moves Redis' clock only
    await queue.sql(backdate)
    assert await beyond_allowed(queue) == []


async def test_a_token_returned_at_rate_0_calls_no_fan(queue: Queue) -> None:
    await queue.open(fans=5, rate_per_s=0)
    await queue.write_room_hash({"tokens": 3})  # as a call that is undone returns them
    await queue.tick()
    assert await queue.called() == []


# -- gauges ------------------------------------------------------------------------------------------------------------


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"event_id": EVENT, **labels}) or 0.0


async def refresh(queue: Queue) -> None:
    await refresh_gauges(queue.state.gatekeeper.frames, queue.db, queue.redis)


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
