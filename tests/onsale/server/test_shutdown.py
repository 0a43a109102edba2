"""Shutdown of a process behind a load balancer: not ready first, then drained; requests under way are answered."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from onsale.local.ports import free_port
from onsale.server import serve
from shared.contracts.fields import ServiceMessage
from shared.features import installed
from shared.process.settings import ServiceSettings
from shared.rpc import sign_service_call
from shared.web.app import create_service
from shared.web.internal_api import InternalApi
from tests.support.wait import wait_until

DELAY_S = 0.6
HOST = "127.0.0.1"


class Nothing(ServiceMessage):
    pass


class Slow(ServiceMessage):
    lifespan_over: bool


class QueueProcess:
    """A queue without its features, served in this process. `slow_began` is set when a slow request is under way; it
    waits for `slow_may_end`.
    """

    def __init__(self) -> None:
        self.slow_began, self.slow_may_end, self.streams_ended_s = asyncio.Event(), asyncio.Event(), 0.0
        self.lifespan_over = False
        ports = free_port(), free_port()
        self.url, self.internal_url = (f"http://{HOST}:{port}" for port in ports)
        self.settings = ServiceSettings(
            port=ports[0],
            internal_port=ports[1],
            drain_delay_s=DELAY_S,
            log_requests=False,
            shutdown_grace_s=5,
            features_off=[feature.name for feature in installed()],
        )
        router = APIRouter()
        router.add_api_route("/slow", self._slow)
        api = InternalApi()
        api.operation("/slow", Nothing)(self._slow_call)
        self.app = create_service(
            "queue", self.settings, title="test", lifespan=self._lifespan,
            routers=[router], internal_api=api,
        )  # fmt: skip
        self.app.state.on_drain.append(self._end_streams)

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        yield
        self.lifespan_over = True

    async def _slow(self) -> dict[str, bool]:
        self.slow_began.set()
        await self.slow_may_end.wait()
        return {"lifespan_over": self.lifespan_over}

    async def _slow_call(self, state: None, question: Nothing) -> Slow:
        return Slow(**await self._slow())

    async def _end_streams(self) -> None:
        self.streams_ended_s = time.monotonic()

    def begin(self) -> "asyncio.Task[None]":
        """Serves until `stop` is set."""
        return asyncio.create_task(self._run())

    async def _run(self) -> None:
        apps = {"queue": self.app}
        self.stop = asyncio.Event()
        async with serve.running(apps, serve.public_listeners(apps), serve.internal_listeners(apps)):  # type: ignore[arg-type]
            await self.stop.wait()


@pytest.fixture
async def queue() -> AsyncIterator[QueueProcess]:
    queue = QueueProcess()
    serving = queue.begin()
    async with httpx.AsyncClient(trust_env=False) as probe:

        async def ready() -> bool:
            try:
                return (await probe.get(f"{queue.url}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(ready)
    yield queue
    queue.slow_may_end.set()
    queue.stop.set()
    await serving
    assert queue.lifespan_over


async def test_readiness_fails_while_every_endpoint_still_answers(queue: QueueProcess) -> None:
    async with httpx.AsyncClient(base_url=queue.url, trust_env=False) as balancer:
        assert "connection" not in (await balancer.get("/version")).headers
        queue.stop.set()
        stopped_s = time.monotonic()

        async def not_ready() -> bool:
            return (await balancer.get("/readyz")).status_code == 503

        await wait_until(not_ready)
        answer = await balancer.get("/version")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close"), "an answer closes its connection"
        assert not queue.streams_ended_s
        await wait_until(lambda: queue.streams_ended_s)
        assert queue.streams_ended_s - stopped_s >= DELAY_S, (
            "a stream that reconnects sooner may reach this process again"
        )


@pytest.mark.parametrize("internal", [False, True], ids=["public", "internal"])
async def test_a_request_under_way_is_answered_before_the_service_closes(queue: QueueProcess, internal: bool) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        headers = sign_service_call(queue.settings.service_keys, "POST", "/internal/slow", b"{}")
        request = asyncio.create_task(
            client.post(f"{queue.internal_url}/internal/slow", content=b"{}", headers=headers)
            if internal
            else client.get(f"{queue.url}/slow")
        )
        await queue.slow_began.wait()
        queue.stop.set()
        async with httpx.AsyncClient(trust_env=False) as newcomer:

            async def closed() -> bool:
                try:
                    await newcomer.get(f"{queue.internal_url if internal else queue.url}/livez")
                except httpx.TransportError:
                    return True
                return False

            await wait_until(closed)
        queue.slow_may_end.set()
        assert (await request).json() == {"lifespan_over": False}


async def test_no_connection_is_accepted_before_the_service_has_started() -> None:
    """nginx sends requests to every process that accepts connections."""
    queue = QueueProcess()
    started = queue.app.router.lifespan_context

    @asynccontextmanager
    async def slow_start(app: FastAPI) -> AsyncIterator[None]:
        async with httpx.AsyncClient(trust_env=False, timeout=1) as client:
            for url in (queue.url, queue.internal_url):
                with pytest.raises(httpx.ConnectError):
                    await client.get(f"{url}/livez")
        async with started(app):
            queue.slow_began.set()
            yield

    queue.app.router.lifespan_context = slow_start
    serving = queue.begin()
    await asyncio.wait_for(
        asyncio.wait({serving, asyncio.create_task(queue.slow_began.wait())}, return_when="FIRST_COMPLETED"), 20
    )
    queue.stop.set()
    await serving
