"""Ended streams leave nothing behind: no object, socket, count or lease of a feed."""

import asyncio
import gc
from collections import Counter

import psutil
import pytest

from services.notifier.metrics import PAUSED, STREAMS
from tests.notifier.client import raw_request
from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.support.wait import wait_until

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
