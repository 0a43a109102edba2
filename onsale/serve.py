"""Runs services in this process: any of the five, each with its public and its internal face, in one event loop.

Starting goes from the ledger's side outwards, stopping the other way: readiness turns false, streams are sent away,
listeners close, services end, and neighbours can be asked until the last service has ended.
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

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import ASGIApp

from onsale.child import EngineTrouble
from onsale.collector import short_pauses
from onsale.whole_answers import WholeAnswers
from shared.routes import Service
from shared.service import drain, internal, public

log = logging.getLogger("onsale.serve")
START_ORDER: tuple[Service, ...] = ("inventory", "queue", "orders", "gateway", "notifier")
ANSWERS_NEIGHBOURS = frozenset({"queue", "inventory", "orders"})
STOP_S = 3


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

    def bind(self) -> socket.socket:
        """The listening socket; raises `EngineTrouble` when somebody else has the port."""
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
        bound.listen(4096)
        bound.setblocking(False)
        return bound


def create(names: Sequence[Service]) -> dict[Service, FastAPI]:
    """The services' apps, built from the environment, in the order in which they start. Raises `EngineTrouble` where
    a setting is refused.
    """
    try:
        return {
            name: importlib.import_module(f"services.{name}.app").create_app() for name in START_ORDER if name in names
        }
    except ValidationError as refused:
        said = (f"{'.'.join(map(str, error['loc'])) or 'settings'}: {error['msg']}" for error in refused.errors())
        raise EngineTrouble(f"The services cannot start: {'; '.join(said)}") from refused


def internal_listeners(apps: Mapping[Service, FastAPI]) -> list[Listener]:
    """What neighbours ask."""
    return [
        Listener(internal(app), app.state.settings.host, app.state.settings.internal_port)
        for name, app in apps.items()
        if name in ANSWERS_NEIGHBOURS
    ]


def public_listeners(apps: Mapping[Service, FastAPI]) -> list[Listener]:
    """What a load balancer asks."""
    return [
        Listener(public(app), settings.host, settings.port, shared=settings.share_port)
        for app, settings in ((app, app.state.settings) for app in apps.values())
    ]


@asynccontextmanager
async def running(
    apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Sequence[Listener]
) -> AsyncIterator[None]:
    """All of it serves inside this context, and nothing is left of it afterwards."""
    async with AsyncExitStack() as stack:
        sockets = [
            (listener, stack.enter_context(contextlib.closing(listener.bind()))) for listener in (*inside, *outside)
        ]
        within = [(listener, bound) for listener, bound in sockets if listener in inside]
        inner = await stack.enter_async_context(_servers())
        for app in apps.values():
            await stack.enter_async_context(app.router.lifespan_context(app))
        await inner.start(within)
        outer = await stack.enter_async_context(_servers())
        stack.push_async_callback(_drain, apps)
        await outer.start([pair for pair in sockets if pair not in within])
        await stack.enter_async_context(short_pauses())
        yield


async def _drain(apps: Mapping[Service, FastAPI]) -> None:
    await asyncio.gather(*(drain(app) for app in apps.values()))


class _Servers:
    """Some uvicorn servers, started and stopped together."""

    def __init__(self) -> None:
        self._servers: list[uvicorn.Server] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listeners: Sequence[tuple[Listener, socket.socket]]) -> None:
        for listener, bound in listeners:
            config = uvicorn.Config(
                listener.app,
                http=WholeAnswers,
                proxy_headers=False,  # nobody here asks for the fan's address; the balancer has its limits
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=STOP_S,
                timeout_keep_alive=75,
                backlog=4096,
            )
            server = GuestServer(config)
            self._servers.append(server)
            self._tasks.append(asyncio.create_task(server.serve(sockets=[bound])))
        while not all(server.started for server in self._servers):  # noqa: ASYNC110 - uvicorn offers nothing to wait for
            await asyncio.sleep(0.005)

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


async def until_told(apps: Mapping[Service, FastAPI], outside: Sequence[Listener], inside: Sequence[Listener]) -> None:
    """Serves until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(apps, outside, inside):
        await stop.wait()
