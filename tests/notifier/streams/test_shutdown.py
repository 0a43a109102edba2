"""Shutdown: each stream gets a retry delay and ends, in random order, and the server stops within seconds."""

import time

import pytest

from services.notifier.metrics import STREAMS
from services.notifier.settings import Settings
from services.notifier.topics.hub import Hub
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
