"""Thousands of ended streams leave nothing behind: no object, socket, count or feed.

`STREAMS_THAT_CAME=10000` makes it ten thousand.
"""

import asyncio
import gc
import os
from collections import Counter

import psutil
import pytest

from services.notifier.metrics import PAUSED, STREAMS
from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.conftest import EVENT, Notifier, Start, fan
from tests.support.wait import wait_until

CAME = int(os.environ.get("STREAMS_THAT_CAME", "1000"))
AT_ONCE = 100
OURS = ("services.", "uvicorn.", "sse_starlette.", "asyncio.")


def kept() -> Counter[str]:
    """Objects of ours and of the server's, by class. The loop removes cancelled timers only now and then."""
    gc.collect()
    things = (it for it in gc.get_objects() if not (isinstance(it, asyncio.TimerHandle) and it.cancelled()))
    names = (f"{type(thing).__module__}.{type(thing).__name__}" for thing in things)
    return Counter(name for name in names if name.startswith(OURS))


async def came_and_went(notifier: Notifier, n: int) -> None:
    path = f"/events/{EVENT}/sections/updates"
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {fan(n)}\r\n\r\n".encode())
    await reader.readuntil(b"event: line")
    if n % 3:
        writer.transport.abort()
    writer.close()


@pytest.mark.parametrize(("transport", "share"), list(zip(TRANSPORTS, (1, 4, 20), strict=True)))
async def test_streams_that_came_and_went_leave_nothing_behind(start: Start, transport: str, share: int):
    notifier = await start(transport=transport, streams_new_per_s=1_000_000, heartbeat_s=0.3, feed_idle_ttl_s=60)
    process, state = psutil.Process(), notifier.state

    async def crowd(size: int) -> tuple[Counter[str], int]:
        for first in range(0, size, AT_ONCE):
            await asyncio.gather(*(came_and_went(notifier, n) for n in range(first, min(first + AT_ONCE, size))))
        await wait_until(lambda: len(state.hub) == 0 and not notifier.serving.server.server_state.connections)
        await wait_until(lambda: not notifier.serving.server.server_state.tasks)
        state.heartbeats._active.clear()
        return kept(), len(process.net_connections("tcp"))

    objects, sockets = await crowd(AT_ONCE)  # what is made once is made now
    after, sockets_after = await crowd(max(AT_ONCE, CAME // share))
    assert {name: n for name, n in (after - objects).items() if n > 10} == {}
    assert sockets_after <= sockets + 5
    assert not state.limiter._by_identity
    assert not state.heartbeats._connected
    assert not state.hub.paused
    assert (STREAMS.labels("event")._value.get(), PAUSED._value.get()) == (0, 0)
    assert [feed.lease_count for feed in state.feeds._feeds.values()] == [0]
