"""The end of streams: at shutdown each gets a retry delay and ends, in random order, and the server stops within
seconds. Ended streams leave nothing behind: no object, socket, count or lease of a feed.
"""

import asyncio
import gc
import time
from collections import Counter

import psutil
import pytest

from services.notifier.metrics import PAUSED, STREAMS
from services.notifier.settings import Settings
from services.notifier.topics.hub import Hub
from tests.notifier.client import raw_request
from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.notifier.streams.test_slow_reader import SlowReader, flood, paused_count, slow_reader
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

__all__ = ["slow_reader"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_draining_ends_every_stream_with_a_retry_delay_and_the_server_stops(start: Start, transport: str):
    notifier = await start(drain_s=1.0, graceful_s=30, transport=transport)
    clients = [await notifier.join(n) for n in range(20)]
    began_s = time.monotonic()
    await notifier.drain()
    late = await notifier.open(notifier.path, token=notifier.token())
    await notifier.serving.stop()
    assert time.monotonic() - began_s < 2
    await wait_until(lambda: all(client.closed for client in (*clients, late)))
    assert all(client.complete and len(client.retries) == 2 for client in clients)
    assert len({client.retries[-1] for client in clients}) > 10, "the retry delays differ"
    assert len(notifier.state.hub) == 0
    assert (late.status, [event.name for event in late.events], len(late.retries)) == (200, ["turned_away"], 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_client_that_does_not_read_does_not_delay_the_shutdown(slow_reader: SlowReader, transport: str):
    notifier, _, client = await slow_reader(graceful_s=30, transport=transport)
    await flood(notifier, client, range(1000, 1040))
    assert paused_count(notifier) == 1
    began_s = time.monotonic()
    await notifier.drain()
    await notifier.serving.stop()
    assert time.monotonic() - began_s < 2


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_that_stops_without_draining_sends_a_retry_delay(start: Start, transport: str):
    notifier = await start(graceful_s=0, transport=transport)
    client = await notifier.join()
    await notifier.serving.stop()
    await notifier.lifespan.aclose()  # as a server with lifespan support does after it stopped
    await wait_until(lambda: client.closed)
    assert client.complete
    assert len(client.retries) == 2


def test_the_retry_delays_of_many_streams_spread_their_reconnects():
    """20,000 streams reconnect over ten seconds, at 2,000 a second."""
    hub = Hub(Settings())
    delays_of_few = {hub.retry() for _ in range(200)}
    hub._draining_n = 20_000
    delays_of_many = [int(hub.retry().split()[1]) for _ in range(500)]
    assert max(int(one.split()[1]) for one in delays_of_few) <= 4_000
    assert min(delays_of_many) >= 2_000
    assert 9_000 < max(delays_of_many) <= 12_000


async def test_the_feed_of_ended_streams_is_closed(notifier: Notifier):
    for n in range(30):
        client = await notifier.listen(token=queue_token(n))
        await client.close()
    state = notifier.state
    await wait_until(lambda: len(state.hub) == 0)
    await wait_until(lambda: not state.feeds._feeds)
    assert not state.limiter._by_identity
    assert not state.heartbeats._connected
    assert STREAMS.labels("event")._value.get() == 0


AT_ONCE, MANY = 50, 1000
PACKAGES = ("services.", "uvicorn.", "sse_starlette.", "asyncio.")


def live_objects() -> Counter[str]:
    """Counts our and the server's objects by class. Cancelled timers do not count: the loop removes them late."""
    gc.collect()
    objects = (each for each in gc.get_objects() if not (isinstance(each, asyncio.TimerHandle) and each.cancelled()))
    names = (f"{type(each).__module__}.{type(each).__name__}" for each in objects)
    return Counter(name for name in names if name.startswith(PACKAGES))


async def open_and_leave(notifier: Notifier, n: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(notifier.token(n), notifier.path))
    await reader.readuntil(b"event: " + notifier.names[0].encode())
    if n % 3:
        writer.transport.abort()
    writer.close()


@pytest.mark.parametrize("ended", [100, pytest.param(MANY, marks=pytest.mark.proof)])
@pytest.mark.parametrize(
    "transport", [pytest.param(name, marks=[] if name == "detached" else pytest.mark.proof) for name in TRANSPORTS]
)
async def test_ended_streams_leave_nothing_behind(start: Start, transport: str, ended: int):
    crowd = {"streams_new_per_s": 1_000_000, "streams_per_identity": AT_ONCE}
    notifier = await start(transport=transport, heartbeat_s=0.3, feed_idle_ttl_s=60, **crowd)
    process, state = psutil.Process(), notifier.state

    async def run_crowd(size: int) -> tuple[Counter[str], int]:
        for first in range(0, size, AT_ONCE):
            await asyncio.gather(*(open_and_leave(notifier, n) for n in range(first, min(first + AT_ONCE, size))))
        await wait_until(lambda: len(state.hub) == 0 and not notifier.serving.server.server_state.connections)
        await wait_until(lambda: not notifier.serving.server.server_state.tasks)
        state.heartbeats._active.clear()
        return live_objects(), len(process.net_connections("tcp"))

    objects_before, sockets_before = await run_crowd(AT_ONCE)  # creates what is created once
    objects_after, sockets_after = await run_crowd(ended)
    assert {name: n for name, n in (objects_after - objects_before).items() if n > 10} == {}
    assert sockets_after <= sockets_before + 5
    assert not state.limiter._by_identity
    assert not state.heartbeats._connected
    assert not state.hub.paused
    assert [STREAMS.labels(kind)._value.get() for kind in ("event", "order")] == [0, 0]
    assert PAUSED._value.get() == 0
    assert {feed.lease_count for feed in state.feeds._feeds.values()} == {0}
