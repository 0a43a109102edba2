"""A gateway with a fake queue and a real Redis."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.gateway.app import create_app
from services.gateway.settings import Settings
from services.gateway.state import State
from shared.contracts.frames import LineFrame, line_channel
from shared.contracts.queue import HeartbeatReport
from shared.web.app import public
from tests.gateway.fake_queue import FakeQueue, listening
from tests.support.wait import wait_until


@pytest.fixture
async def queue() -> AsyncIterator[FakeQueue]:
    """The fake, listening on loopback; `queue.url` says where."""
    async with listening() as fake:
        yield fake


@pytest.fixture
def settings(queue: FakeQueue, redis_url: str) -> Settings:
    return Settings(queue_url=queue.url, redis_url=redis_url)


@pytest.fixture
async def app(settings: Settings, queue: FakeQueue) -> AsyncIterator[FastAPI]:
    """The gateway, running; its background loops have run once."""
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        await wait_until(lambda: queue.received(HeartbeatReport))
        yield app


@pytest.fixture
def state(app: FastAPI) -> State:
    state: State = app.state.deps
    return state


@pytest.fixture
async def browser(app: FastAPI) -> AsyncIterator[Callable[[], httpx.AsyncClient]]:
    """Makes HTTP clients, each with its own cookies and our pages' Origin."""
    clients = []

    def make(**headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(public(app))
        own = {"origin": "http://gateway", **headers}
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=own))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def fan(browser: Callable[[], httpx.AsyncClient]) -> httpx.AsyncClient:
    return browser()


@pytest.fixture
async def show(redis: Any, state: State) -> Callable[[LineFrame], Any]:
    """Publishes a frame and returns once the gateway has it."""

    async def show(frame: LineFrame) -> None:
        def taken() -> bool:
            line = state.line_cache.cached(frame.event_id)
            return line is not None and line.frame.version == frame.version

        async def shown() -> bool:
            await redis.publish(line_channel(frame.event_id), frame.model_dump_json())
            return taken()

        await wait_until(shown)

    return show
