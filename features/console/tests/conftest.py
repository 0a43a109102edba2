"""A console on a port with real databases, and the other services in this process behind it."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from features.console.app import create_app
from features.console.schemas import STREAM_PATH
from features.console.settings import Settings
from features.console.tests.admin import EVENT, FANS, FILE, Admin
from features.console.tuning import Tuning
from onsale.server_sent_events import messages
from services.queue.state import State as QueueState
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.security.auth import AdminKeys
from shared.web.app import public
from tests.support.running.services import Neighbours
from tests.support.running.serving import parted, serving

KEYS = {role: f"a-key-of-the-{role}-for-tests" for role in ("viewer", "operator", "admin")}
ADMIN_KEYS = ",".join(f"{role}-1:{role}:{secret}" for role, secret in KEYS.items())
LINK = "a-link-secret-for-tests-only"
TICK_S = 0.1  # the console's second in tests
Start = Callable[..., contextlib.AbstractAsyncContextManager["Console"]]


class Console:
    """A running console, its address and its neighbours."""

    def __init__(self, app: FastAPI, url: str, admin: Admin) -> None:
        self.app, self.url, self.admin = app, url, admin

    def client(self, key: str | None = KEYS["viewer"]) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=10, trust_env=False)

    @contextlib.asynccontextmanager
    async def stream(self, event_id: str = EVENT) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The messages of a stream: names and data. Its first figures wait for no service to open."""
        await self.admin.open()
        async with self.client() as client, client.stream("GET", STREAM_PATH.format(event_id=event_id)) as response:
            assert response.status_code == 200, await response.aread()
            assert "content-encoding" not in response.headers
            yield ((name, json.loads(data)) async for name, data, *_ in messages(response.aiter_lines()))


async def next_of(stream: AsyncIterator[tuple[str, Any]], name: str) -> Any:
    """The data of the next message of this name."""
    async for found, data in stream:
        if found == name:
            return data
    raise AssertionError(f"the stream ended without {name}")


async def join(queue: QueueState) -> None:
    joins = [JoinRequest(holder=f"fan-{n}") for n in range(FANS)]
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=joins))


@pytest.fixture
async def admin(redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Admin]:
    """Of an event whose fans wait."""
    neighbours = Neighbours(FILE, monkeypatch, redis_url=redis_url, postgres_url=postgres_url, admin_keys=ADMIN_KEYS)
    neighbours.real_queue.begins_with.append(join)
    yield Admin(neighbours)
    await neighbours.close()


@pytest.fixture
def start(redis_url: str, postgres_url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a console; several may run at the same time. Ten of its seconds are one."""
    monkeypatch.setattr("features.console.app.TICK_S", TICK_S)
    monkeypatch.setattr("features.console.gathering.registry.TICK_MS", round(1000 * TICK_S))

    @contextlib.asynccontextmanager
    async def start(**changes: Any) -> AsyncIterator[Console]:
        async with contextlib.AsyncExitStack() as stack:
            port = await stack.enter_async_context(serving(admin))
            settings = {
                "redis_url": redis_url, "postgres_url": postgres_url, "admin_url": f"http://127.0.0.1:{port}",
                "admin_keys": AdminKeys(ADMIN_KEYS), "link_secret": LINK, "changes_interval_s": 2 * TICK_S, **changes,
            }  # fmt: skip
            tuning, rest = parted(Tuning, settings)
            app = create_app(Settings(**rest), tuning)
            await stack.enter_async_context(app.router.lifespan_context(app))
            yield Console(app, f"http://127.0.0.1:{await stack.enter_async_context(serving(public(app)))}", admin)

    return start


@pytest.fixture
async def console(start: Start) -> AsyncIterator[Console]:
    async with start() as console:
        yield console
