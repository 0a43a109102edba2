"""An engine that takes what it is sent and never answers: after one time-out nobody waits for it any more."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from services.queue.app import build
from services.queue.line.redis_line import ANSWER_WITHIN_S
from services.queue.line.replies import Stock
from services.queue.settings import Settings
from shared.redis.client import REDIS_AWAY, connect
from tests.queue.conftest import EVENT, Queue

AT_ONCE_S = 0.5
HOST = "127.0.0.1"


@pytest.fixture
async def silent_url() -> AsyncIterator[str]:
    """What a frozen process looks like: the kernel takes connections and bytes, and nothing comes back."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(swallow, HOST, 0)
    async with server:
        yield f"redis://{HOST}:{server.sockets[0].getsockname()[1]}/0"


@pytest.fixture
async def frozen(queue: Queue, silent_url: str, postgres, inventory) -> AsyncIterator[Queue]:
    """Another process of the queue, for which Redis has stopped to answer. It has seen the room before."""
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    client = connect(silent_url)
    process = Queue(build(Settings(), postgres, client, inventory.client()), postgres, queue.redis, inventory)
    await process.state.rooms.refresh()
    process.state.gatekeeper.frames.last[EVENT] = await queue.tick()
    yield process
    await client.aclose()


async def seconds_of(waiting) -> float:
    begun_s = time.monotonic()
    await waiting
    return time.monotonic() - begun_s


async def test_one_time_out_opens_the_way_past_it_for_all_that_wait(frozen: Queue, queue: Queue):
    assert await seconds_of(frozen.join("ann", "fan-2")) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(frozen.join("ben", "fan-3", may_be_known=True)) < AT_ONCE_S
    assert await seconds_of(frozen.status((1, "fan-1"), (4, "ann"))) < AT_ONCE_S
    assert await seconds_of(frozen.leave((1, "fan-1"))) < AT_ONCE_S
    with pytest.raises(REDIS_AWAY):
        await asyncio.wait_for(frozen.claim((2, "fan-2")), AT_ONCE_S)
    assert await frozen.status((4, "ann"), (5, "ben"), (1, "fan-1")) == ["waiting", "waiting", "left"]


@pytest.mark.parametrize("first", ["status", "leave", "turn"])
async def test_nobody_waits_longer_than_a_second_whoever_comes_first(frozen: Queue, first: str):
    ways = {
        "status": lambda: frozen.status((1, "fan-1")),
        "leave": lambda: frozen.leave((1, "fan-1")),
        "turn": lambda: frozen.state.gatekeeper._tick_logged(EVENT),
    }
    assert await seconds_of(ways[first]()) < ANSWER_WITHIN_S + AT_ONCE_S
    assert await seconds_of(frozen.join("ann")) < AT_ONCE_S


async def test_a_tick_that_is_answered_ends_the_timeout(frozen: Queue, queue: Queue):
    await frozen.join("ann")
    frozen.state.line.redis = queue.state.line.redis
    await frozen.state.line.tick(await frozen.state.rooms.get(EVENT), heartbeat_gap=False, stock=Stock())
    [joined] = await frozen.join("ben")
    assert joined.join_seq == 5
    assert (await queue.room_hash())["join_seq:0"] == "5", "numbered by Redis again"
