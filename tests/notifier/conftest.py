"""A notifier on a port, its neighbours in this process, a proxy before Redis, and SSE clients on real sockets."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from features.hall.seat_codes import SeatsFrame
from services.notifier import app as notifier_app
from services.notifier.app import create_app
from services.notifier.settings import Settings
from services.notifier.state import State
from services.notifier.tuning import Tuning
from shared.contracts.frames import LineFrame, OrderFrame, StockFrame, log_key, order_channel
from shared.messaging.snapshots import PUBLISH, SnapshotPublisher
from shared.web.app import drain, public
from shared.web.parts import with_settings_of_parts
from tests.notifier.client import UPDATES, SseClient, all_have_head
from tests.notifier.frames import (
    EVENT,
    FILE,
    REFERENCE,
    channel_of,
    line_frame,
    order_frame,
    seats_frame,
    stock_frame,
)
from tests.notifier.orders import write_order
from tests.notifier.tokens import order_token, queue_token
from tests.support.engines.tcp_proxy import TcpProxy
from tests.support.running.services import Neighbours
from tests.support.running.serving import Serving, parted, serve
from tests.support.wait import wait_until


@pytest.fixture
async def neighbours(redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Neighbours]:
    """Queue, inventory and orders, with the event of the test and an order of it. Heartbeats always arrive."""
    neighbours = Neighbours(
        FILE, monkeypatch, spared=frozenset({"/heartbeats"}), redis_url=redis_url, postgres_url=postgres_url
    )
    neighbours.real_orders.begins_with.append(write_order)
    monkeypatch.setattr(notifier_app, "client", neighbours.connections)
    yield neighbours
    await neighbours.close()


@pytest.fixture
def unpublished() -> None:
    """No frame of the event was published before the test that asks for this: the notifier has to request them."""


@pytest.fixture
def redis_proxy(redis_url: str) -> Iterator[TcpProxy]:
    """Between notifier and Redis."""
    with TcpProxy(redis_url) as proxy:
        yield proxy


TRANSPORTS = ("detached", "asgi", "sse_starlette")
ORDER_PATH = f"/orders/{REFERENCE}/updates"


class Notifier:
    """`transport` names the streams that `join` opens: those of the event, or with sse-starlette of the order."""

    def __init__(self, app: FastAPI, serving: Serving, redis: Any, transport: str) -> None:
        self.app, self.serving, self.redis, self.transport = app, serving, redis, transport
        self.state: State = app.state.deps
        self.clients: list[SseClient] = []
        self.lifespan = contextlib.AsyncExitStack()
        self.port = serving.port
        self.of_order = transport == "sse_starlette"
        self.path = ORDER_PATH if self.of_order else UPDATES
        self.names = ["order"] if self.of_order else ["line", "sections"]

    def token(self, n: int = 1) -> str:
        return order_token() if self.of_order else queue_token(n)

    async def join(self, n: int = 1, **more: str) -> SseClient:
        """Opens a stream on this transport and waits for its snapshot."""
        client = await self.open(self.path, token=self.token(n), **more)
        await wait_until(lambda: client.last(self.names[-1]))
        return client

    async def publish_number(self, number: int) -> None:
        """Publishes a state with this number, which is also its version."""
        await self.publish(order_frame(number, str(number)) if self.of_order else line_frame(number, number))

    def shows(self, number: int, *clients: SseClient) -> bool:
        """Whether this is the number of the last state that each of these clients got."""
        if self.of_order:
            return all(client.last("order")["status"] == str(number) for client in clients)
        return all_have_head(clients, number)

    async def listen(
        self, query: str = "", *, event_id: str = EVENT, token: str | None = None, **more: str
    ) -> SseClient:
        token = queue_token(1) if token is None else token
        return await self.open(f"/events/{event_id}/sections/updates{query}", token=token, **more)

    async def connect(self, query: str = "", **more: str) -> SseClient:
        """Opens a stream and waits for the sections of its snapshot."""
        client = await self.listen(query, **more)
        await wait_until(lambda: client.last("sections"))
        return client

    async def listen_order(self, reference: str = REFERENCE, *, token: str | None = None, **more: str) -> SseClient:
        token = order_token(reference) if token is None else token
        return await self.open(f"/orders/{reference}/updates", token=token, **more)

    async def connect_order(self, reference: str = REFERENCE, **more: str) -> SseClient:
        """Opens a stream of an order and waits for the order's state."""
        client = await self.listen_order(reference, **more)
        await wait_until(lambda: client.last("order"))
        return client

    async def open(self, path: str, *, token: str | None = None, **more: str) -> SseClient:
        client = await SseClient.open(self.port, path, token=token, **more)
        self.clients.append(client)
        return client

    async def publish(self, frame: LineFrame | StockFrame | SeatsFrame | OrderFrame) -> int:
        """Publishes a frame as its service does; returns how many processes received it."""
        if isinstance(frame, OrderFrame):
            receivers: int = await self.redis.publish(order_channel(frame.reference), frame.model_dump_json())
            return receivers
        return await SnapshotPublisher(self.redis).publish(channel_of(frame), frame)

    async def publish_to_log(self, frame: LineFrame | StockFrame | SeatsFrame) -> None:
        """Writes a frame to the log only, as if Pub/Sub had lost it."""
        channel = channel_of(frame)
        await PUBLISH(
            self.redis, log=log_key(channel), channel=f"{channel}:lost", version=frame.version,
            frame=frame.model_dump_json(exclude={"after"}), kept_max=64, kept_s=60, sharded=0,
        )  # fmt: skip

    async def channels(self) -> set[str]:
        """The channels that have a subscriber."""
        command = "SHARDCHANNELS" if await SnapshotPublisher(self.redis).sharded() else "CHANNELS"
        return {channel.decode() for channel in await self.redis.execute_command(f"PUBSUB {command}", "show:*")}

    async def has_channels(self, channels: set[str]) -> bool:
        return await self.channels() == channels

    async def drain(self) -> None:
        await drain(self.app)


def hide_transport(app: ASGIApp) -> ASGIApp:
    """The app as on a server of which only ASGI is known: the notifier cannot reach the socket's transport."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, lambda: receive(), send)

    return wrapped


Start = Callable[..., Awaitable[Notifier]]


@pytest.fixture
async def start(
    redis: Any, redis_proxy: TcpProxy, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Start]:  # fmt: skip
    """Starts a notifier with short intervals; settings that the test passes take precedence. Frames of the event were
    published before, as those of any event, unless the test asks for `unpublished`.
    """
    monkeypatch.setattr(notifier_app, "CHECK_S", 0.05)
    if "unpublished" not in request.fixturenames:
        for frame in (line_frame(10, 5), stock_frame(10, A=100, B=200, GA1=300), seats_frame(10, bytes(8))):
            await SnapshotPublisher(redis).publish(channel_of(frame), frame)
    async with contextlib.AsyncExitStack() as stack:

        async def run(
            *, transport: str = "detached", graceful_s: int = 3, transport_reachable: bool = True, **settings: Any
        ) -> Notifier:
            quick = {
                "window_ms": 50, "ask_interval_s": 0.05, "feed_idle_ttl_s": 0.1, "drain_s": 0.5,
                "log_requests": False, "streams_per_identity": 100,
            }  # fmt: skip
            names = ("queue", "inventory", "orders")
            urls = {"redis_url": redis_proxy.url, **{f"{name}_url": f"http://{name}" for name in names}}
            of_events = {} if transport == "sse_starlette" else {"transport": transport}
            tuning, rest = parted(Tuning, {**quick, **urls, **of_events, **settings})
            app = create_app(with_settings_of_parts(Settings, "notifier")(**rest), tuning)
            lifespan = await stack.enter_async_context(contextlib.AsyncExitStack())
            await lifespan.enter_async_context(app.router.lifespan_context(app))
            served = public(app) if transport_reachable else hide_transport(public(app))
            serving = await serve(served, graceful_s=graceful_s)
            stack.push_async_callback(serving.stop)
            notifier = Notifier(app, serving, redis, transport)
            notifier.lifespan = lifespan
            stack.push_async_callback(notifier.drain)
            stack.push_async_callback(_close_clients, notifier)
            await wait_until(lambda: notifier.state.feeds.subscriber.connected)
            return notifier

        yield run


async def _close_clients(notifier: Notifier) -> None:
    for client in notifier.clients:
        await client.close()


@pytest.fixture
async def notifier(start: Start) -> Notifier:
    return await start()
