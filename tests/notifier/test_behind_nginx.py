"""Streams through a real nginx, as deploy/nginx.conf has it: held in any way, they arrive at once, end and resume."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from httpx_sse import aconnect_sse

from onsale.loopback import free_port
from onsale.nginx import nginx_conf
from services.notifier.stream import WAYS
from shared.routes import SERVICES
from tests.journeys.test_nginx import needs_nginx, private
from tests.notifier.conftest import EVENT, Notifier, Start, fan, line
from tests.support.wait import wait_until

PATH = f"/events/{EVENT}/sections/updates"
pytestmark = [needs_nginx, pytest.mark.parametrize("transport", WAYS)]


@pytest.fixture
async def notifier(start: Start, transport: str) -> Notifier:
    return await start(transport=transport)


@pytest.fixture
def balanced(notifier: Notifier, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    conf = nginx_conf(dict.fromkeys(SERVICES, f"127.0.0.1:{notifier.port}"), listen=f"127.0.0.1:{port}")
    process = subprocess.Popen(private(tmp_path, conf.replace("worker_processes auto", "worker_processes 1")))
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture
async def browser(balanced: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=balanced, headers={"authorization": f"Bearer {fan(1)}"}) as client:

        async def answers() -> bool:
            try:
                return (await client.head(PATH)).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(answers)
        yield client


async def test_a_stream_passes_at_once_and_its_end_too(notifier: Notifier, browser: httpx.AsyncClient):
    await notifier.begin()
    async with aconnect_sse(browser, "GET", PATH) as source:
        assert source.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = source.aiter_sse()
        names = [(await anext(events)).event for _ in range(3)]
        assert names == ["message", "line", "sections"], "retry, then the snapshot"
        await notifier.show(line(11, 6))
        heard = await anext(events)
        assert (heard.event, heard.json()["head_seq"]) == ("line", 6)
        (connection,) = notifier.room.hub
        notifier.room.hub.close(connection)
        assert [event.retry is not None async for event in events] == [True], "the end is a clean one"
    async with aconnect_sse(browser, "GET", PATH, headers={"last-event-id": heard.id}) as source:
        events = source.aiter_sse()
        await anext(events)
        await notifier.show(line(12, 7))
        assert (await anext(events)).json()["head_seq"] == 7
        await events.aclose()
    await wait_until(lambda: len(notifier.room.hub) == 0)
