"""Runs services in this process: each with its public and its internal API, in one event loop.

Services start in the order of their dependencies and stop in reverse: readiness turns false, load balancers get time to
see it while everything still answers, streams are closed, listeners close, and each service answers the others until it
ends itself.

Metrics of several processes as one text: the families of all, each sample with the process it comes from.
"""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, closing
from email.utils import formatdate
from functools import partial

from fastapi import FastAPI
from pydantic import ValidationError
from uvicorn.config import Config
from uvicorn.server import ServerState

from onsale.errors import OperatorError
from onsale.imports import import_module
from onsale.server.one_port import Acceptor, Listener
from onsale.server.pauses import measured_pauses, short_pauses
from onsale.server.request_limits import IncompleteRequests
from onsale.server.uvicorn_protocol import CLOSES, SingleWriteProtocol
from shared.contracts.fields import refusal
from shared.features import installed, package_of
from shared.routes import Service
from shared.rpc import answered_here
from shared.runtime.logging import get_logger
from shared.web.app import drain, internal, public

log = get_logger("onsale.server.serve")
START_ORDER: tuple[Service, ...] = ("inventory", "queue", "orders", "gateway", "notifier", "console")
DATE_S = 1.0
BACKLOG = 4096
KEEP_ALIVE_S = 75
END_CHECK_S = 0.1


class Server:
    """Answers on the listeners of this process with uvicorn's protocol. All have the same date, set once a second: that
    is all that it does while nobody calls.
    """

    def __init__(self) -> None:
        self._fields: list[tuple[bytes, bytes]] = []  # of every response, whichever listener it leaves by
        self._tick()

    def _tick(self) -> None:
        self._fields[:1] = [(b"date", formatdate(usegmt=True).encode())]
        left_s = DATE_S - time.time() % DATE_S
        self._timer = asyncio.get_running_loop().call_later(left_s, self._tick)

    def close(self) -> None:
        """Ends the clock."""
        self._timer.cancel()

    def close_listeners(self) -> None:
        """From now on every response closes its connection, so that few are open when the listeners close."""
        self._fields.append(CLOSES)

    @asynccontextmanager
    async def answering(self, listeners: Sequence[tuple[Listener, socket.socket]]) -> AsyncIterator[None]:
        """Serves connections to these bound sockets inside this context. Its end refuses new ones and waits for the
        responses under way; what is unanswered after the listeners' grace is cancelled.
        """
        state = ServerState()
        state.default_headers = self._fields
        protocol = partial(SingleWriteProtocol, server_state=state, app_state={}, incomplete=IncompleteRequests())
        try:
            with ExitStack() as accepting:
                for listener, bound in listeners:
                    bound.listen(BACKLOG)
                    accepting.enter_context(closing(Acceptor(bound, partial(protocol, _config(listener)))))
                yield
        finally:
            await _end(state, max(listener.grace_s for listener, _ in listeners))


def _config(listener: Listener) -> Config:
    return Config(
        listener.app,
        http="httptools",
        ws="none",
        proxy_headers=False,  # the services read the client address past trusted proxies themselves
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


async def _end(state: ServerState, grace_s: float) -> None:
    for connection in list(state.connections):
        connection.shutdown()
    try:
        async with asyncio.timeout(grace_s):
            await asyncio.sleep(END_CHECK_S)  # some may have been accepted just now
            while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn offers nothing to wait for
                await asyncio.sleep(END_CHECK_S)
    except TimeoutError:
        log.warning("requests.cancelled", requests=len(state.tasks))
        for task in state.tasks:
            task.cancel()


def create(names: Sequence[Service]) -> dict[Service, FastAPI]:
    """The services' apps in their start order, configured by the environment, without those of features that are
    switched off. Raises `OperatorError`.
    """
    apps = {name: _create(name) for name in START_ORDER if name in names}
    return {name: app for name, app in apps.items() if not _is_off(name, app.state.settings.features_off)}


def _is_off(name: Service, off: Collection[str]) -> bool:
    return any(name in feature.services for feature in installed() if feature.name in off)


def _create(name: Service) -> FastAPI:
    try:
        app: FastAPI = import_module(f"{package_of(name)}.app").create_app()
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
        server = stack.enter_context(closing(Server()))
        for name, app in apps.items():
            await stack.enter_async_context(app.router.lifespan_context(app))
            if name in within:
                await stack.enter_async_context(server.answering([within[name]]))
            if len(apps) > 1:
                stack.push_async_callback(app.state.own_process.finish, app.state.settings.shutdown_grace_s)
                stack.enter_context(answered_here(name, app.state.own_process))
        await stack.enter_async_context(server.answering(without))
        stack.push_async_callback(_drain, apps, server)
        await stack.enter_async_context(short_pauses())
        if apps:
            await stack.enter_async_context(measured_pauses())
        yield


def _bound(stack: AsyncExitStack, listener: Listener) -> socket.socket:
    return stack.enter_context(closing(listener.bind()))


async def _drain(apps: Mapping[Service, FastAPI], server: Server) -> None:
    server.close_listeners()
    await asyncio.gather(*(drain(app) for app in apps.values()))


async def until_stopped(start: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    """Starts and serves until SIGINT or SIGTERM. One that comes during the start stops it afterwards."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with start():
        await stop.wait()


def merged(texts: Mapping[str, str]) -> str:
    """Texts in Prometheus' format, by process, as one in which every sample has the label `process`."""
    families: dict[str, list[str]] = {}
    for process, text in texts.items():
        family, is_new = list[str](), True
        for line in text.splitlines():
            if not line.startswith("#"):
                family.append(_labelled(line, process))
                continue
            _, kind, name, *_ = line.split(" ", 3)
            if kind == "HELP":  # begins a family
                is_new = name not in families
                family = families.setdefault(name, [])
            if is_new:
                family.append(line)
    return "".join(f"{line}\n" for family in families.values() for line in family)


def _labelled(sample: str, process: str) -> str:
    name, braces, labels = sample.partition("{")
    if braces:
        return f'{name}{{process="{process}",{labels}'
    name, _, value = sample.partition(" ")
    return f'{name}{{process="{process}"}} {value}'
