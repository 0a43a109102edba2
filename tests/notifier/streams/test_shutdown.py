"""At shutdown streams are told when to come back, in random order, and the server stops promptly."""

import time

import pytest

from services.notifier.broadcast.hub import Hub
from services.notifier.metrics import STREAMS
from services.notifier.settings import Settings
from services.notifier.streams.open_stream import WAYS
from tests.notifier.conftest import Neighbours, Notifier, Start, fan
from tests.notifier.streams.test_slow_reader import Sleeper, behind, flood
from tests.support.wait import wait_until


@pytest.mark.parametrize("transport", WAYS)
async def test_draining_ends_every_stream_with_a_retry_and_the_server_stops(start: Start, transport: str):
    notifier = await start(drain_s=1.0, graceful_s=30, transport=transport)
    ears = [await notifier.listen(token=fan(n)) for n in range(20)]
    await wait_until(lambda: all(ear.last("sections") for ear in ears))
    began = time.monotonic()
    await notifier.drain()
    await notifier.serving.stop()
    assert time.monotonic() - began < 2
    await wait_until(lambda: all(ear.closed for ear in ears))
    assert all(ear.complete and len(ear.retries) == 2 for ear in ears)
    assert len({ear.retries[-1] for ear in ears}) > 10, "they come back spread out"
    assert len(notifier.state.hub) == 0


async def test_who_comes_while_draining_is_sent_away(notifier: Notifier):
    await notifier.drain()
    ear = await notifier.listen()
    await wait_until(lambda: ear.closed)
    assert (ear.status, [heard.name for heard in ear.heard], len(ear.retries)) == (200, ["turned_away"], 1)


@pytest.mark.parametrize("transport", WAYS)
async def test_a_reader_that_does_not_read_does_not_hold_up_the_end(start: Start, transport: str):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, graceful_s=30, transport=transport)
    sleeper = Sleeper(notifier.port, fan(2))
    ear = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, ear, range(1000, 1040))
    assert behind(notifier) == 1
    began = time.monotonic()
    await notifier.drain()
    await notifier.serving.stop()
    assert time.monotonic() - began < 2
    sleeper.socket.close()


@pytest.mark.parametrize("transport", WAYS)
async def test_a_server_that_stops_without_draining_still_says_when_to_come_back(start: Start, transport: str):
    notifier = await start(graceful_s=0, transport=transport)
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await notifier.serving.stop()
    await notifier.end()  # as a server does that ends the app's lifespan
    await wait_until(lambda: ear.closed)
    assert ear.complete
    assert len(ear.retries) == 2


def test_a_crowd_comes_back_no_faster_than_it_is_let_in():
    """20,000 listeners, of whom a process takes 2,000 a second, come back over ten seconds."""
    hub = Hub(Settings())
    few = {hub.retry() for _ in range(200)}
    hub._leaving = 20_000
    many = [int(hub.retry().split()[1]) for _ in range(500)]
    assert max(int(said.split()[1]) for said in few) <= 4_000
    assert min(many) >= 2_000
    assert 9_000 < max(many) <= 12_000


async def test_streams_that_came_and_went_leave_nothing_behind(notifier: Notifier, neighbours: Neighbours):
    for n in range(30):
        ear = await notifier.listen(token=fan(n))
        await ear.close()
    state = notifier.state
    await wait_until(lambda: len(state.hub) == 0)
    await wait_until(lambda: not state.following._feeds)
    assert not state.turnstile._by_identity
    assert not state.life._open
    assert STREAMS.labels("event")._value.get() == 0
