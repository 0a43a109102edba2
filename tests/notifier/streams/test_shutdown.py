"""At shutdown streams get a reconnection delay and end in random order, and the server stops promptly."""

import time

import pytest

from services.notifier.broadcast.hub import Hub
from services.notifier.metrics import STREAMS
from services.notifier.settings import Settings
from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.conftest import FakeServices, Notifier, Start, fan
from tests.notifier.streams.test_slow_reader import Sleeper, behind, flood
from tests.support.wait import wait_until


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_draining_ends_every_stream_with_a_retry_and_the_server_stops(start: Start, transport: str):
    notifier = await start(drain_s=1.0, graceful_s=30, transport=transport)
    clients = [await notifier.listen(token=fan(n)) for n in range(20)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    began = time.monotonic()
    await notifier.drain()
    await notifier.serving.stop()
    assert time.monotonic() - began < 2
    await wait_until(lambda: all(client.closed for client in clients))
    assert all(client.complete and len(client.retries) == 2 for client in clients)
    assert len({client.retries[-1] for client in clients}) > 10, "they come back spread out"
    assert len(notifier.state.hub) == 0


async def test_new_streams_are_rejected_while_draining(notifier: Notifier):
    await notifier.drain()
    client = await notifier.listen()
    await wait_until(lambda: client.closed)
    assert (client.status, [event.name for event in client.events], len(client.retries)) == (200, ["turned_away"], 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_reader_that_does_not_read_does_not_hold_up_the_end(start: Start, transport: str):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, graceful_s=30, transport=transport)
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1040))
    assert behind(notifier) == 1
    began = time.monotonic()
    await notifier.drain()
    await notifier.serving.stop()
    assert time.monotonic() - began < 2
    sleeper.socket.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_that_stops_without_draining_still_says_when_to_come_back(start: Start, transport: str):
    notifier = await start(graceful_s=0, transport=transport)
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await notifier.serving.stop()
    await notifier.end()  # as a server does that ends the app's lifespan
    await wait_until(lambda: client.closed)
    assert client.complete
    assert len(client.retries) == 2


def test_a_crowd_reconnects_no_faster_than_it_is_accepted():
    """20,000 listeners reconnect over ten seconds to a process that accepts 2,000 a second."""
    hub = Hub(Settings())
    few = {hub.retry() for _ in range(200)}
    hub._draining_n = 20_000
    many = [int(hub.retry().split()[1]) for _ in range(500)]
    assert max(int(one.split()[1]) for one in few) <= 4_000
    assert min(many) >= 2_000
    assert 9_000 < max(many) <= 12_000


async def test_streams_that_came_and_went_leave_nothing_behind(notifier: Notifier, services: FakeServices):
    for n in range(30):
        client = await notifier.listen(token=fan(n))
        await client.close()
    state = notifier.state
    await wait_until(lambda: len(state.hub) == 0)
    await wait_until(lambda: not state.feeds._feeds)
    assert not state.limiter._by_identity
    assert not state.heartbeats._connected
    assert STREAMS.labels("event")._value.get() == 0
