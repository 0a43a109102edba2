"""A line without Redis: numbers come from the database, and nobody waits for an engine that does not answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.queue.line.redis_line import ANSWER_WITHIN_S, Stock
from shared.redis.client import REDIS_AWAY, connect
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


# -- a Redis that accepts connections and never answers ----------------------------------------------------------------


AT_ONCE_S = 0.5
HOST = "127.0.0.1"


@pytest.fixture
async def silent_url() -> AsyncIterator[str]:
    """A server that reads and never answers, as a frozen process does."""

    async def read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(read_only, HOST, 0)
    async with server:
        yield f"redis://{HOST}:{server.sockets[0].getsockname()[1]}/0"


@pytest.fixture
async def frozen(queue: Queue, silent_url: str, new_queue) -> AsyncIterator[Queue]:
    """Another queue process, which has read the room before its Redis stopped answering."""
    await queue.open(fans=3, rate_per_s=0)
    client = connect(silent_url)
    process = new_queue(client)
    await process.state.rooms.refresh()
    process.state.gatekeeper.frames.last[EVENT] = await queue.tick()
    yield process
    await client.aclose()


async def seconds_of(request: Awaitable[object]) -> float:
    begun_s = time.monotonic()
    await request
    return time.monotonic() - begun_s


async def test_after_one_timeout_requests_are_answered_without_redis(frozen: Queue, queue: Queue):
    assert await seconds_of(frozen.join("ann", "fan-2")) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(frozen.join("ben", "fan-3", may_be_known=True)) < AT_ONCE_S
    assert await seconds_of(frozen.status((1, "fan-1"), (4, "ann"))) < AT_ONCE_S
    assert await seconds_of(frozen.leave((1, "fan-1"))) < AT_ONCE_S
    with pytest.raises(REDIS_AWAY):
        await asyncio.wait_for(frozen.claim((2, "fan-2")), AT_ONCE_S)
    assert await frozen.status((4, "ann"), (5, "ben"), (1, "fan-1")) == ["waiting", "waiting", "left"]


@pytest.mark.parametrize("first", ["status", "leave", "tick"])
async def test_the_first_request_waits_for_one_timeout_and_the_next_not_at_all(frozen: Queue, first: str):
    requests = {
        "status": lambda: frozen.status((1, "fan-1")),
        "leave": lambda: frozen.leave((1, "fan-1")),
        "tick": lambda: frozen.state.gatekeeper._tick_logged(EVENT),
    }
    assert await seconds_of(requests[first]()) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(frozen.join("ann")) < AT_ONCE_S


async def test_an_answered_tick_ends_the_timeout(frozen: Queue, queue: Queue):
    await frozen.join("ann")
    frozen.state.line.redis = queue.state.line.redis
    await frozen.tick_unsaved(stock=Stock())
    [joined] = await frozen.join("ben")
    assert joined.join_seq == 5
    assert (await queue.room_hash())["join_seq:0"] == "5", "numbered by Redis again"
