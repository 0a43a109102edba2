"""Streams through the generated nginx and HAProxy configurations, on every transport: delivery, end and resumption."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from httpx_sse import aconnect_sse

from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.support.running.suite import Kind, balancer_parameters, plan_for_ports, running_balancer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.parametrize("kind", balancer_parameters()), pytest.mark.parametrize("transport", TRANSPORTS)]


@pytest.fixture
async def notifier(start: Start, transport: str) -> Notifier:
    return await start(transport=transport)


@pytest.fixture
def balanced(notifier: Notifier, kind: Kind, tmp_path: Path) -> Iterator[str]:
    with running_balancer(kind, plan_for_ports(notifier.port), tmp_path) as url:
        yield url


@pytest.fixture
async def browser(notifier: Notifier, balanced: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=balanced, headers={"authorization": f"Bearer {notifier.token()}"}) as client:

        async def answers() -> bool:
            try:
                return (await client.head(notifier.path)).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(answers)
        yield client


async def test_frames_and_the_end_of_a_stream_pass_the_balancer_at_once_and_it_resumes(
    notifier: Notifier, browser: httpx.AsyncClient
):
    async with aconnect_sse(browser, "GET", notifier.path) as source:
        assert source.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = source.aiter_sse()
        names = ["message", *notifier.names]
        assert [(await anext(events)).event for _ in names] == names, "retry, then the snapshot"
        await notifier.publish_number(11)
        event = await anext(events)
        assert (event.event, "11" in event.data) == (notifier.names[0], True)
        (connection,) = notifier.state.hub
        notifier.state.hub.close(connection)
        assert [event.retry is not None async for event in events] == [True], "the response ends with a retry delay"
    async with aconnect_sse(browser, "GET", notifier.path, headers={"last-event-id": event.id}) as source:
        events = source.aiter_sse()
        await anext(events)
        await notifier.publish_number(12)
        assert "12" in (await anext(events)).data
        await events.aclose()
    await wait_until(lambda: len(notifier.state.hub) == 0)
