"""Joins while Redis is unavailable: numbers come from the database, and the line calls them afterwards."""

import asyncio
from collections.abc import Callable

import pytest

from shared.redis.client import connect
from tests.queue.conftest import EVENT, UNREACHABLE_REDIS_URL, Queue


@pytest.fixture
def cut_off(new_queue) -> Callable[[], Queue]:
    """Makes queue processes that cannot reach Redis."""
    return lambda: new_queue(connect(UNREACHABLE_REDIS_URL, timeout_s=0.2))


async def test_joins_take_numbers_from_the_database_while_redis_is_unavailable(queue: Queue, cut_off):
    await queue.open(fans=3, rate_per_s=0)
    process = cut_off()
    joined = await process.join("ann", "ben", "fan-2")
    assert [(j.word, j.join_seq) for j in joined[:2]] == [("joined", 4), ("joined", 5)]
    assert (joined[2].word, joined[2].join_seq) == ("known", 2)
    assert await process.status((4, "ann")) == ["waiting"]
    frame = await process.state.gatekeeper.frame(EVENT)
    assert (frame.ready, frame.lanes[0].tail_seq) == (False, 5)


async def test_four_processes_take_distinct_numbers_from_the_database(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    processes = [cut_off() for _ in range(4)]
    answers = await asyncio.gather(*(process.join_fans(50, name=f"p{i}") for i, process in enumerate(processes)))
    numbers = [j.join_seq for answer in answers for j in answer]
    assert sorted(numbers) == list(range(1, 201))


async def test_places_numbered_by_the_database_are_committed_before_redis_gives_the_next_numbers(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.end_assumed_liveness()
    process = cut_off()
    await process.join("ann")
    process.state.line.redis = queue.state.line.redis
    process.state.line.unresponsive.clear()
    process.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    assert [j.join_seq for j in await process.join("ben")] == [2]
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert await queue.called() == [1, 2]


async def test_places_numbered_by_a_process_that_died_are_called(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.end_assumed_liveness()
    await cut_off().join("ann", "ben")
    await queue.state.gatekeeper.raise_counters()
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert await queue.called() == [1, 2]


async def test_a_join_during_a_rebuild_takes_a_number_from_the_database(queue: Queue):
    await queue.open(fans=2, rate_per_s=0)
    await queue.write_room_hash({"ready": 0})
    assert [j.join_seq for j in await queue.join("ann")] == [3]
