"""Runs services in this process: any of the six, each with its public and its internal API, in one event loop.

Services start in the order of their dependencies and stop in reverse: readiness turns false, load balancers get time to
see it while everything still answers, streams are closed, listeners close, and each service answers the others until it
ends itself.
"""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import ceil
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from onsale.errors import OperatorError
from onsale.imports import import_module
from onsale.server.gc_tuning import short_pauses
from onsale.server.listener import Acceptor, Listener
from onsale.server.loop_health import measured_pauses
from onsale.server.request_limits import IncompleteRequests
from onsale.server.uvicorn_protocol import SingleWriteProtocol
from shared.contracts.fields import refusal
from shared.routes import Service
from shared.rpc import answered_here
from shared.runtime.logging import get_logger
from shared.web.app import drain, internal, public

log = get_logger("onsale.server.serve")
START_ORDER: tuple[Service, ...] = ("inventory", "queue", "orders", "gateway", "notifier", "console")
DATE_S = 1.0
BACKLOG = 4096
KEEP_ALIVE_S = 75
LAST_RESPONSE = (b"connection", b"close")


class GuestServer(uvicorn.Server):
    """A uvicorn server that handles no signals, so that several can share a process, and sleeps while nobody calls."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()
        self._acceptor: Acceptor | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Sets the date of responses each second until `stop`, all servers of the process at the same moment; uvicorn's
        own loop wakes ten times a second to ask.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_S - time.time() % DATE_S):
                    await self._stopping.wait()

    def accept(self, listening: socket.socket) -> None:
        """Serves connections to this socket until `stop`."""
        protocol: Any = self.config.http_protocol_class
        state = {"server_state": self.server_state, "app_state": self.lifespan.state}
        self._acceptor = Acceptor(listening, partial(protocol, config=self.config, **state))

    def stop(self) -> None:
        """Lets `serve` end now."""
        if self._acceptor:  # there is none yet if the start was broken off
            self._acceptor.close()
        self.should_exit = True
        self._stopping.set()


def create(names: Sequence[Service]) -> dict[Service, FastAPI]:
    """The services' apps in their start order, configured by the environment. Raises `OperatorError`."""
    return {name: _create(name) for name in START_ORDER if name in names}


def _create(name: Service) -> FastAPI:
    try:
        app: FastAPI = import_module(f"services.{name}.app").create_app()
    except ValidationError as invalid:
        found = [
            (".".join(map(str, e["loc"])), refusal(e).removesuffix("."))
            for e in invalid.errors(include_input=False, include_url=False)
        ]
        raise OperatorError(f"{name}: {'; '.join(f'{at}: {why}' if at else why for at, why in found)}.") from None
    return app


def internal_listeners(apps: Mapping[Service, FastAPI]) -> dict[Service, Listener]:
    """The internal API and metrics of each service."""
    return {
        name: Listener(internal(app), settings.host, settings.internal_port, grace_s=settings.shutdown_grace_s)
        for name, app, settings in ((name, app, app.state.settings) for name, app in apps.items())
    }


def public_listeners(apps: Mapping[Service, FastAPI]) -> list[Listener]:
    """The public API of each service."""
    return [
        Listener(public(app), settings.host, settings.port, settings.share_port, settings.shutdown_grace_s)
        for app, settings in ((app, app.state.settings) for app in apps.values())
    ]


@asynccontextmanager
async def running(
    apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Mapping[Service, Listener]
) -> AsyncIterator[None]:
    """Serves inside this context and stops everything at its end. `outside` are public listeners, `inside` internal."""
    async with AsyncExitStack() as stack:
        within = {name: (listener, _bound(stack, listener)) for name, listener in inside.items()}
        without = [(listener, _bound(stack, listener)) for listener in outside]
        if len(apps) > 1:
            for _, bound in within.values():
                bound.listen(BACKLOG)  # services in one process may call each other before they are ready
        servers = []
        for name, app in apps.items():
            await stack.enter_async_context(app.router.lifespan_context(app))
            if name in within:
                servers.append(inner := await stack.enter_async_context(_servers()))
                await inner.start([within[name]])
            if len(apps) > 1:
                stack.push_async_callback(app.state.own_process.finish, app.state.settings.shutdown_grace_s)
                stack.enter_context(answered_here(name, app.state.own_process))
        servers.append(outer := await stack.enter_async_context(_servers()))
        stack.push_async_callback(_drain, apps, servers)
        await outer.start(without)
        await stack.enter_async_context(short_pauses())
        if apps:
            await stack.enter_async_context(measured_pauses())
        yield


def _bound(stack: AsyncExitStack, listener: Listener) -> socket.socket:
    return stack.enter_context(contextlib.closing(listener.bind()))


async def _drain(apps: Mapping[Service, FastAPI], servers: "Sequence[_RunningServers]") -> None:
    for each in servers:
        each.close_listeners()
    await asyncio.gather(*(drain(app) for app in apps.values()))


class _RunningServers:
    """Some uvicorn servers, started and stopped together."""

    def __init__(self) -> None:
        self._servers: list[GuestServer] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listeners: Sequence[tuple[Listener, socket.socket]]) -> None:
        bounded = partial(SingleWriteProtocol, incomplete=IncompleteRequests())
        for listener, _ in listeners:
            config = uvicorn.Config(
                listener.app,
                http=bounded,  # type: ignore[arg-type]  # called as the class would be
                ws="none",
                proxy_headers=False,  # the services read the client address past trusted proxies themselves
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=ceil(listener.grace_s),
                timeout_keep_alive=KEEP_ALIVE_S,
            )
            server = GuestServer(config)
            self._servers.append(server)
            self._tasks.append(asyncio.create_task(server.serve(sockets=[])))  # it accepts nothing by itself
        while not all(server.started for server in self._servers):  # noqa: ASYNC110 - uvicorn offers nothing to wait for
            await asyncio.sleep(0.005)
        for server, (_, bound) in zip(self._servers, listeners, strict=True):
            bound.listen(BACKLOG)
            server.accept(bound)

    def close_listeners(self) -> None:
        """From now on every response closes its connection, so that few are open when the listeners close."""
        for server in self._servers:
            server.config.encoded_headers.append(LAST_RESPONSE)
            server.server_state.default_headers.append(LAST_RESPONSE)

    async def stop(self) -> None:
        for server in self._servers:
            server.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def _servers() -> AsyncIterator[_RunningServers]:
    servers = _RunningServers()
    try:
        yield servers
    finally:
        await servers.stop()


async def until_stopped(
    apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Mapping[Service, Listener]
) -> None:
    """Serves until SIGINT or SIGTERM."""
    told = stop_signal()
    async with running(apps, outside, inside):
        await told.wait()


def stop_signal() -> asyncio.Event:
    """Is set by SIGINT and SIGTERM from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
