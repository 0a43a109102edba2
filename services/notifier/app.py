"""The notifier's app: opens its connections, starts its background loops, and drains its streams at shutdown."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import uvicorn
from fastapi import FastAPI

from services.notifier.api import FAST_ROUTES
from services.notifier.feeds.registry import FeedRegistry
from services.notifier.headroom import Headroom
from services.notifier.settings import Settings
from services.notifier.state import State
from services.notifier.streams import detached
from services.notifier.streams.open_stream import CHECK_S, PassStreams, StreamLimiter, StreamOpener
from services.notifier.topics.hub import HeartbeatTimer, Hub
from services.notifier.tuning import DEFAULTS, Tuning
from shared.clients.heartbeats import HeartbeatReporter
from shared.clients.revoked_passes import RevokedPasses
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.queue import QueueClient
from shared.errors.problems import Problem
from shared.messaging.snapshots import SnapshotPublisher
from shared.process.load import LOAD_S, Load
from shared.redis.client import Redis, connect
from shared.rpc import ServiceClient, client
from shared.runtime.logging import get_logger
from shared.security.tokens import PassReader, QueueTokens
from shared.web.app import create_service
from shared.web.parts import Databases, with_settings_of_parts

log = get_logger("onsale.notifier")


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The notifier, not yet connected to anything."""
    chosen = settings or with_settings_of_parts(Settings, "notifier")()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            # no retries: a lost connection means missed frames and must be noticed
            redis = connect(chosen.redis_url, service="notifier", retries=0)
            stack.push_async_callback(redis.aclose)
            app.state.databases = Databases(redis)
            pool = await stack.enter_async_context(client())

            def service(name: str, url: str) -> ServiceClient:
                return ServiceClient(pool, url, chosen.service_keys, name=name)

            state = app.state.deps = build_state(chosen, tuning, redis, service)
            app.state.on_drain.append(state.hub.drain)
            stack.push_async_callback(_close, state)
            loops = await stack.enter_async_context(Loops("notifier"))
            _start(loops, state)
            presence = partial(Load("notifier").publish, redis, state.limiter.counts)
            loops.every(LOAD_S, presence, name="notifier.load")
            stack.push_async_callback(state.hub.drain)  # for servers that do not run `on_drain`
            yield

    return create_service(
        "notifier", chosen, title="notifier", lifespan=lifespan, fast_routes=FAST_ROUTES,
        checks=lambda app: {"redis": app.state.deps.feeds.subscriber.check},
    )  # fmt: skip


def build_state(
    settings: Settings,
    tuning: Tuning,
    redis: Redis,
    service: Callable[[str, str], ServiceClient],
) -> State:
    """Wires the notifier's objects together."""
    hub, headroom = Hub(settings, tuning), Headroom(tuning)
    queue = QueueClient(service("queue", settings.queue_url))
    limiter, heartbeats = StreamLimiter(settings, headroom), HeartbeatReporter(queue, service="notifier")
    revoked_passes = RevokedPasses(redis, queue)
    pass_streams = PassStreams(hub, revoked_passes)
    return State(
        settings=settings,
        hub=hub,
        feeds=FeedRegistry(
            settings,
            tuning,
            hub,
            redis,
            SnapshotPublisher(redis),
            queue=queue,
            inventory=InventoryClient(service("inventory", settings.inventory_url)),
            orders=OrdersClient(service("orders", settings.orders_url)),
        ),
        limiter=limiter,
        streams=StreamOpener(hub, limiter, heartbeats, pass_streams),
        revoked_passes=revoked_passes,
        pass_streams=pass_streams,
        headroom=headroom,
        heartbeats=heartbeats,
        queue_tokens=QueueTokens(settings.queue_token_keys),
        passes=PassReader.of(settings),
        queue=queue,
    )


def _start(loops: Loops, state: State) -> None:
    if state.settings.transport == "detached" and not detached.is_supported():
        log.warning("transport.fallback", uvicorn=uvicorn.__version__, transport="asgi")
    loops.keep(state.feeds.subscriber.listen, name="notifier.subscriber")
    loops.keep(state.hub.run, name="notifier.frames")
    loops.every(state.hub.tuning.ask_interval_s, state.feeds.sweep, name="notifier.feeds")
    loops.keep(state.revoked_passes.listen, name="notifier.revoked_passes")
    loops.every(CHECK_S, state.revoked_passes.refresh, name="notifier.revoked_passes_refresh")
    loops.every(CHECK_S, state.pass_streams.check, name="notifier.pass_streams")
    loops.keep(HeartbeatTimer(state.hub).run, name="notifier.heartbeat_timer")
    loops.keep(state.headroom.run, name="notifier.headroom")
    loops.keep(state.heartbeats.run, name="notifier.heartbeats")


async def _close(state: State) -> None:
    """Sends the final heartbeats: the queue must not take the silence that follows for lost heartbeats."""
    await state.feeds.close()
    await state.revoked_passes.close()
    with suppress(Problem):
        await state.heartbeats.report(final=True)
