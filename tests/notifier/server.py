"""A uvicorn server inside the test's event loop, which the test can stop with or without waiting for streams."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.wait import wait_until


class EmbeddedServer(uvicorn.Server):
    """Leaves signals to the test run and stops on an event instead of polling."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop_requested = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop_requested.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Serving:
    server: EmbeddedServer
    task: asyncio.Task[None]
    port: int

    async def stop(self, *, at_once: bool = False) -> None:
        self.server.force_exit = at_once
        self.server.stop_requested.set()
        await self.task


async def serve(app: ASGIApp, *, graceful_s: int = 3) -> Serving:
    config = uvicorn.Config(
        app, port=0, lifespan="off", log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=graceful_s
    )
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started, interval_s=0.001)
    return Serving(server, task, server.servers[0].sockets[0].getsockname()[1])


def hide_transport(app: ASGIApp) -> ASGIApp:
    """The app as on a server of which only ASGI is known: the notifier cannot reach the socket's transport."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, lambda: receive(), send)

    return wrapped
