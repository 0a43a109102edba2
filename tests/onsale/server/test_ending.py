"""How a process ends behind a balancer: seen first, then drained, and nothing that was begun is lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from onsale.local.ports import free_port
from onsale.server import serve
from shared.runtime.settings import ServiceSettings
from shared.security.auth import sign_service_call
from shared.web.app import create_service
from tests.support.wait import wait_until

DELAY_S = 0.6
HOST = "127.0.0.1"


class Process:
    """A process of the queue, in this one. `begun` is set when a slow call is under way, which then waits for `go`."""

    def __init__(self) -> None:
        self.begun, self.go, self.streams_ended_s = asyncio.Event(), asyncio.Event(), 0.0
        self.lifespan_over = False
        ports = free_port(), free_port()
        self.url, self.inside = (f"http://{HOST}:{port}" for port in ports)
        self.settings = ServiceSettings(
            port=ports[0], internal_port=ports[1], drain_delay_s=DELAY_S, log_requests=False, shutdown_grace_s=5
        )
        router = APIRouter()
        router.add_api_route("/slow", self._slow)
        neighbours = APIRouter()
        neighbours.add_api_route("/asked", self._asked, methods=["POST"])
        self.app = create_service(
            "queue", self.settings, title="test", lifespan=self._lifespan,
            routers=[router], internal_routers=[neighbours],
        )  # fmt: skip
        self.app.state.on_drain.append(self._end_streams)

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        yield
        self.lifespan_over = True

    async def _slow(self) -> dict[str, bool]:
        self.begun.set()
        await self.go.wait()
        return {"lifespan_over": self.lifespan_over}

    async def _asked(self) -> dict[str, bool]:
        return await self._slow()

    async def _end_streams(self) -> None:
        self.streams_ended_s = time.monotonic()

    def running(self) -> "asyncio.Task[None]":
        """Serves until it is told to end."""
        return asyncio.create_task(self._run())

    async def _run(self) -> None:
        apps = {"queue": self.app}
        self.told = asyncio.Event()
        async with serve.running(apps, serve.public_listeners(apps), serve.internal_listeners(apps)):  # type: ignore[arg-type]
            await self.told.wait()


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    made = Process()
    running = made.running()
    async with httpx.AsyncClient(trust_env=False) as probe:

        async def ready() -> bool:
            try:
                return (await probe.get(f"{made.url}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(ready)
    yield made
    made.go.set()
    made.told.set()
    await running
    assert made.lifespan_over


async def test_balancers_see_it_while_everything_still_answers(process: Process) -> None:
    async with httpx.AsyncClient(base_url=process.url, trust_env=False) as balancer:
        assert "connection" not in (await balancer.get("/version")).headers
        process.told.set()
        told_s = time.monotonic()

        async def not_ready() -> bool:
            return (await balancer.get("/readyz")).status_code == 503

        await wait_until(not_ready)
        answer = await balancer.get("/version")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close"), "each answer is the last"
        assert not process.streams_ended_s
        await wait_until(lambda: process.streams_ended_s)
        assert process.streams_ended_s - told_s >= DELAY_S, "a stream that came back sooner would have come back here"


@pytest.mark.parametrize("inside", [False, True], ids=["fans", "neighbours"])
async def test_what_was_begun_is_answered_before_the_service_closes(process: Process, inside: bool) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        headers = sign_service_call(process.settings.service_keys, "POST", "/internal/asked", b"")
        asking = asyncio.create_task(
            client.post(f"{process.inside}/internal/asked", headers=headers)
            if inside
            else client.get(f"{process.url}/slow")
        )
        await process.begun.wait()
        process.told.set()
        async with httpx.AsyncClient(trust_env=False) as late:

            async def closed() -> bool:
                try:
                    await late.get(f"{process.inside if inside else process.url}/livez")
                except httpx.TransportError:
                    return True
                return False

            await wait_until(closed)
        process.go.set()
        assert (await asking).json() == {"lifespan_over": False}


async def test_nobody_is_let_in_before_the_service_has_started() -> None:
    """nginx asks whoever takes connections: a process that is still starting takes none."""
    process = Process()
    started = process.app.router.lifespan_context

    @asynccontextmanager
    async def slow_start(app: FastAPI) -> AsyncIterator[None]:
        async with httpx.AsyncClient(trust_env=False, timeout=1) as early:
            for url in (process.url, process.inside):
                with pytest.raises(httpx.ConnectError):
                    await early.get(f"{url}/livez")
        async with started(app):
            process.begun.set()
            yield

    process.app.router.lifespan_context = slow_start
    running = process.running()
    await asyncio.wait_for(
        asyncio.wait({running, asyncio.create_task(process.begun.wait())}, return_when="FIRST_COMPLETED"), 20
    )
    process.told.set()
    await running
