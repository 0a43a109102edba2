"""Runs services in this process: any of the five, each with its public and its internal face, in one event loop.

Starting goes from the ledger's side outwards, stopping the other way: readiness turns false, balancers get the time to
see it while everything still answers, streams are sent away, listeners close, and each service can be asked by its
neighbours until it ends itself.
"""

import asyncio
import contextlib
import importlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import ASGIApp

from onsale.local.process import EngineTrouble
from onsale.server.gc_tuning import short_pauses
from onsale.server.request_limits import Incomplete
from onsale.server.uvicorn_protocol import WholeAnswers
from shared.web.app import drain, internal, public
from shared.web.routes import Service

log = logging.getLogger("onsale.server.serve")
START_ORDER: tuple[Service, ...] = ("inventory", "queue", "orders", "gateway", "notifier")
STOP_S = 3
BACKLOG = 4096
LAST_ANSWER = (b"connection", b"close")


class GuestServer(uvicorn.Server):
    """A server that leaves the signals to its host, so that several may share a process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Listener:
    """An app on an address; if `shared`, other processes have sockets of their own there, and the kernel chooses."""

    app: ASGIApp
    host: str
    port: int
    shared: bool = False
    grace_s: float = STOP_S

    def bind(self) -> socket.socket:
        """A socket on the address, which refuses connections until it is listened on: a balancer must not think that
        somebody is there before somebody is. Raises `EngineTrouble` when somebody else has the port.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((self.host, self.port))
        except OSError as taken:
            bound.close()
            raise EngineTrouble(f"Port {self.port} on {self.host} cannot be used: {taken.strerror}.") from taken
        bound.setblocking(False)
        return bound


def create(names: Sequence[Service]) -> dict[Service, FastAPI]:
    """The services' apps, built from the environment, in the order in which they start. Raises `EngineTrouble`."""
    return {name: _create(name) for name in START_ORDER if name in names}


def _create(name: Service) -> FastAPI:
    try:
        app: FastAPI = importlib.import_module(f"services.{name}.app").create_app()
    except ValidationError as wrong:
        found = [(".".join(map(str, e["loc"])), e["msg"]) for e in wrong.errors(include_input=False, include_url=False)]
        raise EngineTrouble(f"{name}: {'; '.join(f'{at}: {why}' if at else why for at, why in found)}.") from None
    return app


def internal_listeners(apps: Mapping[Service, FastAPI]) -> dict[Service, Listener]:
    """What neighbours ask, and who collects metrics."""
    return {
        name: Listener(internal(app), settings.host, settings.internal_port, grace_s=settings.shutdown_grace_s)
        for name, app, settings in ((name, app, app.state.settings) for name, app in apps.items())
    }


def public_listeners(apps: Mapping[Service, FastAPI]) -> list[Listener]:
    """What a load balancer asks."""
    return [
        Listener(public(app), settings.host, settings.port, settings.share_port, settings.shutdown_grace_s)
        for app, settings in ((app, app.state.settings) for app in apps.values())
    ]


@asynccontextmanager
async def running(
    apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Mapping[Service, Listener]
) -> AsyncIterator[None]:
    """All of it serves inside this context, and nothing is left of it afterwards."""
    async with AsyncExitStack() as stack:
        within = {name: (listener, _bound(stack, listener)) for name, listener in inside.items()}
        without = [(listener, _bound(stack, listener)) for listener in outside]
        if len(apps) > 1:
            for _, bound in within.values():
                bound.listen(BACKLOG)  # neighbours in one process wait for each other
        servers = []
        for name, app in apps.items():
            await stack.enter_async_context(app.router.lifespan_context(app))
            if name in within:
                servers.append(inner := await stack.enter_async_context(_servers()))
                await inner.start([within[name]])
        servers.append(outer := await stack.enter_async_context(_servers()))
        stack.push_async_callback(_drain, apps, servers)
        await outer.start(without)
        await stack.enter_async_context(short_pauses())
        yield


def _bound(stack: AsyncExitStack, listener: Listener) -> socket.socket:
    return stack.enter_context(contextlib.closing(listener.bind()))


async def _drain(apps: Mapping[Service, FastAPI], servers: "Sequence[_Servers]") -> None:
    for each in servers:
        each.let_go()
    await asyncio.gather(*(drain(app) for app in apps.values()))


class _Servers:
    """Some uvicorn servers, started and stopped together."""

    def __init__(self) -> None:
        self._servers: list[uvicorn.Server] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listeners: Sequence[tuple[Listener, socket.socket]]) -> None:
        bounded = partial(WholeAnswers, incomplete=Incomplete())
        for listener, bound in listeners:
            bound.listen(BACKLOG)
            config = uvicorn.Config(
                listener.app,
                http=bounded,  # type: ignore[arg-type]  # called as the class would be
                ws="none",
                proxy_headers=False,  # who asks for the fan's address reads it past trusted proxies itself
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=ceil(listener.grace_s),
                timeout_keep_alive=75,
                backlog=BACKLOG,
            )
            server = GuestServer(config)
            self._servers.append(server)
            self._tasks.append(asyncio.create_task(server.serve(sockets=[bound])))
        while not all(server.started for server in self._servers):  # noqa: ASYNC110 - uvicorn offers nothing to wait for
            await asyncio.sleep(0.005)

    def let_go(self) -> None:
        """From now on every answer is its connection's last, so that few are left when the listeners close."""
        for server in self._servers:
            server.config.encoded_headers.append(LAST_ANSWER)
            server.server_state.default_headers.append(LAST_ANSWER)

    async def stop(self) -> None:
        for server in self._servers:
            server.should_exit = True
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def _servers() -> AsyncIterator[_Servers]:
    servers = _Servers()
    try:
        yield servers
    finally:
        await servers.stop()


async def until_told(
    apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Mapping[Service, Listener]
) -> None:
    """Serves until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(apps, outside, inside):
        await stop.wait()
