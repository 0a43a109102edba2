"""A running gateway with the real queue and a real Redis, and browsers that call it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis

from services.gateway import app as gateway_app
from services.gateway.app import create_app
from services.gateway.settings import Settings
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS, Tuning
from shared.contracts.frames import LineFrame, line_channel
from shared.web.app import public
from shared.web.parts import with_settings_of_parts
from tests.queue.conftest import Inventory
from tests.support.engines.database import Database
from tests.support.neighbours import Connections
from tests.support.running.services import QueueService, queue_service
from tests.support.running.serving import borrowed_app
from tests.support.wait import wait_until

AllSettings = with_settings_of_parts(Settings, "gateway")


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


@pytest.fixture
def inventory() -> Inventory:
    """The inventory that the queue asks; gateways reach none."""
    return Inventory()


@pytest.fixture
async def queue(
    database: Database, redis: Redis, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[QueueService]:
    """The real queue, which every gateway of the test reaches."""
    async with queue_service(database, redis, inventory.client()) as queue:
        monkeypatch.setattr(gateway_app, "client", Connections({"queue": queue}))
        yield queue


@pytest.fixture
def settings(queue: QueueService, redis_url: str) -> Settings:
    return AllSettings(queue_url="http://queue", redis_url=redis_url)


@pytest.fixture
async def app(settings: Settings, queue: QueueService) -> AsyncIterator[FastAPI]:
    """The gateway, after its background loops have run once."""
    with borrowed_app(create_app, settings, DEFAULTS) as app:
        async with app.router.lifespan_context(app):
            await wait_until(lambda: queue.calls["/heartbeats"], interval_s=0.001)
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
