"""A Redis that accepts connections and never answers: after one timeout no request waits for it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable

import pytest

from services.queue.line.redis_line import ANSWER_WITHIN_S, Stock
from shared.redis.client import REDIS_AWAY, connect
from tests.queue.conftest import EVENT, Queue

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
async def cut_off(queue: Queue, silent_url: str, new_queue) -> AsyncIterator[Queue]:
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


async def test_after_one_timeout_requests_are_answered_without_redis(cut_off: Queue, queue: Queue):
    assert await seconds_of(cut_off.join("ann", "fan-2")) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(cut_off.join("ben", "fan-3", may_be_known=True)) < AT_ONCE_S
    assert await seconds_of(cut_off.status((1, "fan-1"), (4, "ann"))) < AT_ONCE_S
    assert await seconds_of(cut_off.leave((1, "fan-1"))) < AT_ONCE_S
    with pytest.raises(REDIS_AWAY):
        await asyncio.wait_for(cut_off.claim((2, "fan-2")), AT_ONCE_S)
    assert await cut_off.status((4, "ann"), (5, "ben"), (1, "fan-1")) == ["waiting", "waiting", "left"]


@pytest.mark.parametrize("first", ["status", "leave", "tick"])
async def test_the_first_request_waits_for_one_timeout_and_the_next_not_at_all(cut_off: Queue, first: str):
    requests = {
        "status": lambda: cut_off.status((1, "fan-1")),
        "leave": lambda: cut_off.leave((1, "fan-1")),
        "tick": lambda: cut_off.state.gatekeeper._tick_logged(EVENT),
    }
    assert await seconds_of(requests[first]()) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(cut_off.join("ann")) < AT_ONCE_S


async def test_an_answered_tick_ends_the_timeout(cut_off: Queue, queue: Queue):
    await cut_off.join("ann")
    cut_off.state.line.redis = queue.state.line.redis
    await cut_off.tick_unsaved(stock=Stock())
    [joined] = await cut_off.join("ben")
    assert joined.join_seq == 5
    assert (await queue.room_hash())["join_seq:0"] == "5", "numbered by Redis again"
