"""A running gateway with a fake queue and a real Redis, and browsers that call it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from services.gateway.app import create_app
from services.gateway.settings import Settings
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS, Tuning
from shared.contracts.frames import LineFrame, line_channel
from shared.contracts.queue import HeartbeatReport
from shared.web.app import public
from tests.gateway.fake_queue import FakeQueue
from tests.support.running.apps import borrowed_app
from tests.support.running.serving import serving
from tests.support.wait import wait_until


@asynccontextmanager
async def gateway_client(
    settings: Settings, tuning: Tuning = DEFAULTS, *, base_url: str = "http://gateway"
) -> AsyncIterator[httpx.AsyncClient]:
    """Runs a gateway with these settings; yields a client of it."""
    with borrowed_app(create_app, settings, tuning) as app:
        transport = httpx.ASGITransport(public(app))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=base_url) as client,
        ):
            yield client


class QueueAddress:
    """Where the gateways of all tests find the queue of the running test: their settings are equal, so is their app."""

    url: str
    queue: FakeQueue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.queue(scope, receive, send)


@pytest.fixture(scope="session")
async def queue_address() -> AsyncIterator[QueueAddress]:
    address = QueueAddress()
    async with serving(address) as port:
        address.url = f"http://127.0.0.1:{port}"
        yield address


@pytest.fixture
async def queue(queue_address: QueueAddress) -> AsyncIterator[FakeQueue]:
    fake = queue_address.queue = FakeQueue()
    fake.url = queue_address.url
    yield fake
    fake.may_answer.set()


@pytest.fixture
def settings(queue: FakeQueue, redis_url: str) -> Settings:
    return Settings(queue_url=queue.url, redis_url=redis_url)


@pytest.fixture
async def app(settings: Settings, queue: FakeQueue) -> AsyncIterator[FastAPI]:
    """The gateway, after its background loops have run once."""
    with borrowed_app(create_app, settings, DEFAULTS) as app:
        async with app.router.lifespan_context(app):
            await wait_until(lambda: queue.received(HeartbeatReport), interval_s=0.001)
            yield app


@pytest.fixture
def state(app: FastAPI) -> State:
    state: State = app.state.deps
    return state


@pytest.fixture
async def browser(app: FastAPI) -> AsyncIterator[Callable[[], httpx.AsyncClient]]:
    """Creates HTTP clients; each has its own cookies, and the Origin of the gateway's pages."""
    clients = []

    def make(**headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(public(app))
        all_headers = {"origin": "http://gateway", **headers}
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=all_headers))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def fan(browser: Callable[[], httpx.AsyncClient]) -> httpx.AsyncClient:
    return browser()


@pytest.fixture
async def publish_frame(redis: Any, state: State) -> Callable[[LineFrame], Any]:
    """Publishes a frame and waits until the gateway has received it."""

    async def publish_frame(frame: LineFrame) -> None:
        def received() -> bool:
            line = state.line_cache.cached(frame.event_id)
            return line is not None and line.frame.version == frame.version

        async def published() -> bool:
            await redis.publish(line_channel(frame.event_id), frame.model_dump_json())
            return received()

        await wait_until(published)

    return publish_frame
