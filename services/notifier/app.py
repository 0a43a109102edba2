"""The notifier's app: opens its connections, starts its loops, and sends its streams away when the process ends."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import uvicorn
from fastapi import FastAPI

from services.notifier.api import HOT_ROUTES
from services.notifier.broadcast.heartbeat_timer import HeartbeatTimer, collections_timed
from services.notifier.broadcast.hub import Hub
from services.notifier.feeds.registry import FeedRegistry
from services.notifier.headroom import Headroom
from services.notifier.heartbeats import Heartbeats
from services.notifier.openapi import document_streams
from services.notifier.settings import Settings
from services.notifier.state import State
from services.notifier.streams import detached
from services.notifier.streams.limits import StreamLimiter
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis, connect
from shared.redis.snapshots import SnapshotPublisher
from shared.rpc.client import ServiceClient, client
from shared.rpc.user_places import UserPlaces
from shared.runtime.background import Loops
from shared.runtime.logging import data
from shared.security.tokens import PassReader, QueueTokens
from shared.security.user_jwt import Users, signed_in
from shared.web import api_document
from shared.web.app import Checks, create_service
from shared.web.problems import Problem

log = logging.getLogger("onsale.notifier")


def create_app(settings: Settings | None = None) -> FastAPI:
    """The notifier, not yet connected to anything."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            redis = connect(chosen.redis_url, retries=0)  # a lost connection means missed frames: it must be noticed
            stack.push_async_callback(redis.aclose)
            pool = await stack.enter_async_context(client())

            def neighbour(name: str, url: str) -> ServiceClient:
                return ServiceClient(pool, url, chosen.service_keys, name=name)

            users = await stack.enter_async_context(signed_in(chosen))
            state = app.state.deps = build_state(chosen, redis, neighbour, users)
            app.state.on_drain.append(state.hub.drain)
            stack.push_async_callback(_close, state)
            stack.enter_context(collections_timed())
            loops = await stack.enter_async_context(Loops())
            _start(loops, state)
            stack.push_async_callback(
                state.hub.drain
            )  # a server that asks for no draining ends its detached streams here
            yield

    app = create_service("notifier", chosen, title="notifier", lifespan=lifespan, hot_routes=HOT_ROUTES, checks=_checks)
    document_streams(app)
    api_document.complete(app)
    return app


def build_state(
    settings: Settings, redis: Redis, neighbour: Callable[[str, str], ServiceClient], users: Users
) -> State:
    hub, headroom = Hub(settings), Headroom(settings)
    queue = QueueClient(neighbour("queue", settings.queue_url))
    following = FeedRegistry(
        settings,
        hub,
        redis,
        SnapshotPublisher(redis, settings.pubsub),
        queue=queue,
        inventory=InventoryClient(neighbour("inventory", settings.inventory_url)),
        orders=OrdersClient(neighbour("orders", settings.orders_url)),
    )
    return State(
        settings=settings,
        hub=hub,
        following=following,
        turnstile=StreamLimiter(settings, headroom),
        headroom=headroom,
        life=Heartbeats(queue),
        queue_tokens=QueueTokens(settings.queue_token_keys),
        passes=PassReader(settings.pass_public_keys, seal=settings.service_keys),
        users=users,
        user_places=UserPlaces(queue, name="notifier", waiting_max=settings.streams_new_per_s),
    )


def _start(loops: Loops, state: State) -> None:
    if state.settings.transport == "detached" and not detached.may_detach():
        log.warning("streams.not_detached", extra=data(uvicorn=uvicorn.__version__, held="asgi"))
    loops.keep(state.following.inbox.listen, name="notifier.inbox")
    loops.keep(state.hub.run, name="notifier.frames")
    loops.every(state.settings.ask_interval_s, state.following.sweep, name="notifier.tend")
    loops.keep(HeartbeatTimer(state.hub).run, name="notifier.pulse")
    loops.keep(state.headroom.run, name="notifier.headroom")
    loops.keep(state.life.run, name="notifier.life")


async def _close(state: State) -> None:
    """Says goodbye, so that the queue does not take our silence for deafness."""
    await state.following.close()
    await state.user_places.close()
    with suppress(Problem):
        await state.life.report(goodbye=True)


def _checks(app: FastAPI) -> Checks:
    return {"redis": app.state.deps.following.inbox.check}
