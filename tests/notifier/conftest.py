"""A notifier on a port, fake services behind the contracts, and SSE clients on real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from services.notifier.app import create_app
from services.notifier.settings import Settings
from services.notifier.state import State
from shared.contracts.frames import (
    LaneHead,
    LineFrame,
    OrderFrame,
    SectionCounts,
    StockFrame,
    line_channel,
    log_key,
    order_channel,
    stock_channel,
)
from shared.contracts.inventory import ReadStock
from shared.contracts.orders import OrdersAnswer, OrdersQuestion
from shared.contracts.queue import (
    HeartbeatAnswer,
    HeartbeatReport,
    HoldersAnswer,
    HoldersQuestion,
    PlaceFound,
    RoomQuestion,
)
from shared.redis.snapshots import PUBLISH, SnapshotPublisher
from shared.redis.url import PubSubMode
from shared.runtime.clock import now_ms
from shared.runtime.settings import ServiceSettings, development_keys
from shared.security.order_tokens import sign_order_token
from shared.security.tokens import Pass, QueueToken, QueueTokens, sign_pass
from shared.web.app import create_service, drain, internal, public
from shared.web.problems import Unavailable, UnknownEvent
from tests.notifier.client import SseClient
from tests.support.wait import wait_until

EVENT = "arena"
REFERENCE = "ORDER12345"


class GuestServer(uvicorn.Server):
    """A server without signal handlers that stops on an event instead of polling."""

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
    server: GuestServer
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
    server = GuestServer(config)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started, interval_s=0.001)
    return Serving(server, task, server.servers[0].sockets[0].getsockname()[1])


def line(version: int, head_seq: int = 0, *, epoch: int = 1, **more: Any) -> LineFrame:
    lanes = more.pop("lanes", {0: LaneHead(head_seq=head_seq, tail_seq=1000)})
    return LineFrame(event_id=EVENT, epoch=epoch, version=version, ready=more.pop("ready", True), at_ms=now_ms(),
                     state="open", lanes=lanes, rate_per_s=50, **more)  # fmt: skip


def stock(version: int, **available: int) -> StockFrame:
    sections = [
        SectionCounts(section_id=name, available=count, held=1, sold=2, at_ms=now_ms())
        for name, count in available.items()
    ]
    return StockFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), sections=sections)


def order(version: int, status: str, reference: str = REFERENCE, *, holder: str = "holder-0-1") -> OrderFrame:
    return OrderFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), reference=reference,
                      holder=holder, status=status, body={"reference": reference, "status": status})  # fmt: skip


def elsewhere(app: ASGIApp) -> ASGIApp:
    """The app as under a server of which only ASGI is known."""

    async def face(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, lambda: receive(), send)

    return face


@dataclass
class FakeServices:
    """Queue, inventory and orders, as far as the notifier calls them."""

    line: LineFrame = field(default_factory=lambda: line(10, 5))
    stock: StockFrame = field(default_factory=lambda: stock(10, A=100, B=200, GA1=300))
    orders: dict[str, OrderFrame] = field(default_factory=lambda: {REFERENCE: order(10, "pending")})
    places: dict[str, int] = field(default_factory=dict)
    reports: list[HeartbeatReport] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    away: bool = False
    port: int = 0

    def app(self) -> FastAPI:
        router = APIRouter()

        @router.post("/rooms/frame")
        async def frame(question: RoomQuestion) -> LineFrame:
            self._record_call("frame", question.event_id)
            return self.line

        @router.post("/places")
        async def find(question: HoldersQuestion) -> HoldersAnswer:
            self._record_call("places", question.event_id)
            seqs = [self.places.get(holder) for holder in question.holders]
            return HoldersAnswer(epoch=1, places=[PlaceFound(lane=0, join_seq=seq) if seq else None for seq in seqs])

        @router.post("/stock")
        async def stock(question: ReadStock) -> StockFrame:
            self._record_call("stock", question.event_id)
            return self.stock

        @router.post("/orders/read")
        async def read(question: OrdersQuestion) -> OrdersAnswer:
            self._record_call("orders")
            return OrdersAnswer(orders=[self.orders.get(reference) for reference in question.references])

        @router.post("/heartbeats")
        async def heartbeats(report: HeartbeatReport) -> HeartbeatAnswer:
            self.reports.append(report)
            return HeartbeatAnswer(report_again_s=0.2)

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield

        settings = ServiceSettings(log_requests=False)
        return create_service("neighbours", settings, title="t", lifespan=lifespan, internal_routers=[router])

    def _record_call(self, what: str, event_id: str = EVENT) -> None:
        self.calls.append(what)
        if self.away:
            raise Unavailable
        if event_id != EVENT:
            raise UnknownEvent


@pytest.fixture
async def services() -> AsyncIterator[FakeServices]:
    these = FakeServices()
    serving = await serve(internal(these.app()))
    these.port = serving.port
    yield these
    await serving.stop(at_once=True)


class RedisProxy:
    """A TCP proxy between notifier and Redis, which a test can disconnect and restore."""

    def __init__(self, url: str) -> None:
        db = urlsplit(url)
        self._db = (db.hostname, db.port)
        self._secret = db.password or ""
        self._open: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Future[Any]] = set()
        self._server: asyncio.Server | None = None
        self.silent = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://:{self._secret}@127.0.0.1:{self.port}/0"

    async def restore(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def disconnect(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()
        await asyncio.gather(*self._pumps)
        self._open.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._db)
        self._open += [writer, far_writer]
        if self._server is None:  # it was disconnected meanwhile
            await self.disconnect()
            return
        self._pumps.add(task := asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer)))
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while some := await reader.read(65536):
                if not self.silent:
                    writer.write(some)
        writer.close()


@pytest.fixture
async def redis_proxy(redis_url: str) -> AsyncIterator[RedisProxy]:
    wire = RedisProxy(redis_url)
    await wire.restore()
    yield wire
    await wire.disconnect()


class Notifier:
    def __init__(self, app: FastAPI, serving: Serving, redis: Any) -> None:
        self.app, self.serving, self.redis = app, serving, redis
        self.pubsub: PubSubMode = app.state.deps.settings.pubsub
        self.clients: list[SseClient] = []
        self.lifespan = contextlib.AsyncExitStack()

    @property
    def state(self) -> State:
        state: State = self.app.state.deps
        return state

    @property
    def port(self) -> int:
        return self.serving.port

    async def listen(
        self, query: str = "", *, event_id: str = EVENT, token: str | None = None, **more: str
    ) -> SseClient:
        token = fan(1) if token is None else token
        return await self.open(f"/events/{event_id}/sections/updates{query}", token=token, **more)

    async def listen_order(self, reference: str = REFERENCE, *, token: str | None = None, **more: str) -> SseClient:
        token = order_token(reference) if token is None else token
        return await self.open(f"/orders/{reference}/updates", token=token, **more)

    async def open(self, path: str, *, token: str | None = None, **more: str) -> SseClient:
        client = await SseClient.open(self.port, path, token=token, **more)
        self.clients.append(client)
        return client

    async def show(self, frame: LineFrame | StockFrame | OrderFrame) -> int:
        """Publishes a frame as its owner would; returns how many processes received it."""
        if isinstance(frame, OrderFrame):
            receivers: int = await self.redis.publish(order_channel(frame.reference), frame.model_dump_json())
            return receivers
        return await SnapshotPublisher(self.redis, self.pubsub).publish(channel_of(frame), frame)

    async def begin(self) -> None:
        """Publishes what the fake services would answer: a state from which streams can resume."""
        await self.show(line(10, 5))
        await self.show(stock(10, A=100, B=200, GA1=300))

    async def lose(self, frame: LineFrame | StockFrame) -> None:
        """Publishes a frame to the log only, as when Pub/Sub loses it."""
        channel = channel_of(frame)
        await PUBLISH(
            self.redis, log=log_key(channel), channel=f"{channel}:lost", version=frame.version,
            frame=frame.model_dump_json(exclude={"after"}), kept_max=64, kept_s=60, sharded=0,
        )  # fmt: skip

    async def channels(self) -> set[str]:
        command = "SHARDCHANNELS" if self.pubsub == "sharded" else "CHANNELS"
        return {channel.decode() for channel in await self.redis.execute_command(f"PUBSUB {command}", "show:*")}

    async def drain(self) -> None:
        await drain(self.app)

    async def end(self) -> None:
        """The app's lifespan ends."""
        await self.lifespan.aclose()


def channel_of(frame: LineFrame | StockFrame) -> str:
    return (line_channel if isinstance(frame, LineFrame) else stock_channel)(frame.event_id)


def fan(join_seq: int, *, event_id: str = EVENT, epoch: int = 1, lane: int = 0) -> str:
    token = QueueToken(
        event_id=event_id, epoch=epoch, lane=lane, join_seq=join_seq, holder=f"holder-{lane}-{join_seq}", issued_at_s=0
    )
    return QueueTokens(development_keys("queue-token")).sign(token)


def admitted(join_seq: int = 1, *, event_id: str = EVENT, until_s: float | None = None) -> str:
    expires = int(now_ms() / 1000 + 600 if until_s is None else until_s)
    admission = Pass(
        event_id=event_id,
        holder=f"holder-0-{join_seq}",
        jti="jti",
        epoch=1,
        lane=0,
        join_seq=join_seq,
        qty_max=6,
        issued_at_s=expires - 900,
        expires_at_s=expires,
    )
    return sign_pass(development_keys("pass"), admission)


def order_token(reference: str = REFERENCE) -> str:
    return sign_order_token(development_keys("order-token"), reference)


Start = Callable[..., Awaitable[Notifier]]


@pytest.fixture
async def start(redis: Any, redis_proxy: RedisProxy, services: FakeServices) -> AsyncIterator[Start]:
    """Starts a notifier with quick settings; the test's own settings have priority."""
    async with contextlib.AsyncExitStack() as stack:

        async def run(*, graceful_s: int = 3, in_reach: bool = True, **settings: Any) -> Notifier:
            quick = {
                "window_ms": 50,
                "ask_interval_s": 0.05,
                "feed_idle_ttl_s": 0.1,
                "drain_s": 0.5,
                "log_requests": False,
            }
            url = f"http://127.0.0.1:{services.port}"
            urls = {"redis_url": redis_proxy.url, "queue_url": url, "inventory_url": url, "orders_url": url}
            app = create_app(Settings(**{**quick, **urls, **settings}))
            lifespan = await stack.enter_async_context(contextlib.AsyncExitStack())
            await lifespan.enter_async_context(app.router.lifespan_context(app))
            serving = await serve(public(app) if in_reach else elsewhere(public(app)), graceful_s=graceful_s)
            stack.push_async_callback(serving.stop)
            notifier = Notifier(app, serving, redis)
            notifier.lifespan = lifespan
            stack.push_async_callback(notifier.drain)
            stack.push_async_callback(_close_ears, notifier)
            await wait_until(lambda: notifier.state.feeds.subscriber.connected)
            return notifier

        yield run


async def _close_ears(notifier: Notifier) -> None:
    for client in notifier.clients:
        await client.close()


@pytest.fixture
async def notifier(start: Start) -> Notifier:
    return await start()
