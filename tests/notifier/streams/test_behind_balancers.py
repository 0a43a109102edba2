"""Streams through both generated balancers: on every transport they arrive at once, end and resume."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from httpx_sse import aconnect_sse

from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.conftest import EVENT, Notifier, Start, fan, line
from tests.support.running.balancers import Kind, balancing, in_front_of, parameters
from tests.support.wait import wait_until

PATH = f"/events/{EVENT}/sections/updates"
pytestmark = [pytest.mark.parametrize("kind", parameters()), pytest.mark.parametrize("transport", TRANSPORTS)]


@pytest.fixture
async def notifier(start: Start, transport: str) -> Notifier:
    return await start(transport=transport)


@pytest.fixture
def balanced(notifier: Notifier, kind: Kind, tmp_path: Path) -> Iterator[str]:
    with balancing(kind, in_front_of(notifier.port), tmp_path) as url:
        yield url


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
        event = await anext(events)
        assert (event.event, event.json()["head_seq"]) == ("line", 6)
        (connection,) = notifier.state.hub
        notifier.state.hub.close(connection)
        assert [event.retry is not None async for event in events] == [True], "the end is a clean one"
    async with aconnect_sse(browser, "GET", PATH, headers={"last-event-id": event.id}) as source:
        events = source.aiter_sse()
        await anext(events)
        await notifier.show(line(12, 7))
        assert (await anext(events)).json()["head_seq"] == 7
        await events.aclose()
    await wait_until(lambda: len(notifier.state.hub) == 0)
