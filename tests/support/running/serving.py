"""Serves an ASGI app on loopback in the event loop of the test."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from onsale.server.listener import Listener
from onsale.server.serve import Server
from tests.support.wait import wait_until


async def whole_body(receive: Receive) -> bytes:
    """The body of a request to a small app. Raises `ClientDisconnect`."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


class EmbeddedServer(uvicorn.Server):
    """Leaves signals to the test run, stops on an event instead of polling, and then as soon as nothing runs: uvicorn
    itself sleeps for a tenth of a second at least.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop_requested = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await wait_until(lambda: self.force_exit or not self._is_busy(), interval_s=0.001)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    def _is_busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Serving:
    """A server that the test stops, with or without waiting for open requests."""

    server: EmbeddedServer
    task: asyncio.Task[None]
    port: int

    async def stop(self, *, at_once: bool = False) -> None:
        self.server.force_exit = at_once
        self.server.stop_requested.set()
        await self.task


async def serve(app: Any, *, port: int = 0, graceful_s: int = 1) -> Serving:
    """Listens on a free port by default; the caller runs the lifespan."""
    config = uvicorn.Config(
        app, port=port, lifespan="off", log_config=None, access_log=False, ws="none",
        timeout_graceful_shutdown=graceful_s, date_header=False,  # without ticks it would be that of the start
    )  # fmt: skip
    server = EmbeddedServer(config)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started, interval_s=0.001)
    return Serving(server, task, server.servers[0].sockets[0].getsockname()[1])


@asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[int]:
    """The port on which the app answers until the end of the block."""
    served = await serve(app, port=port)
    try:
        yield served.port
    finally:
        await served.stop()


@asynccontextmanager
async def on_our_protocol(app: Any) -> AsyncIterator[tuple[int, Server]]:
    """The app behind the protocol that services run on: its port, and the server."""
    listener = Listener(app, "127.0.0.1", 0)
    with contextlib.closing(listener.bind()) as bound, contextlib.closing(Server()) as server:
        async with server.answering([(listener, bound)]):
            yield bound.getsockname()[1], server
