"""The gateway's app: opens its connections, starts its background loops and mounts its API.

The gateway is ready without Redis: it then requests frames from the queue, and joining goes on.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI

from services.gateway.api import public_keys
from services.gateway.api import queue as api_queue
from services.gateway.metrics import HEARTBEATS_DROPPED, HEARTBEATS_SENT
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.settings import Settings
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS, Tuning
from services.gateway.waiting_line.cache import POLL_S, LineCache
from services.gateway.waiting_line.join_batcher import JoinBatcher
from services.gateway.waiting_line.place_client import PlaceClient
from shared.clients.heartbeats import HeartbeatReporter
from shared.concurrency.background import Loops
from shared.contracts.queue import QueueClient
from shared.errors.problems import Problem
from shared.process.load import LOAD_S, Load
from shared.redis.client import Redis, connect
from shared.rpc import HttpPoster, ServiceClient, client
from shared.security.tokens import Users
from shared.web.app import create_service
from shared.web.parts import Databases, with_settings_of_parts


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The gateway, not yet connected to anything."""
    chosen = settings or with_settings_of_parts(Settings, "gateway")()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            redis = connect(chosen.redis_url, service="gateway")
            stack.push_async_callback(redis.aclose)
            app.state.databases = Databases(redis)
            connections = await stack.enter_async_context(client())
            state = app.state.deps = build_state(chosen, tuning, redis, connections)
            stack.push_async_callback(_close, state)
            loops = await stack.enter_async_context(Loops("gateway"))
            loops.keep(state.line_cache.listen, name="gateway.lines")
            loops.every(POLL_S, state.line_cache.poll, name="gateway.line_polls")
            loops.keep(state.heartbeats.run, name="gateway.heartbeats")
            loops.every(LOAD_S, partial(Load("gateway").publish, redis), name="gateway.load")
            yield

    return create_service(
        "gateway",
        chosen,
        title="gateway",
        lifespan=lifespan,
        routers=[public_keys.router],
        fast_routes=[*api_queue.FAST_ROUTES],
    )


def build_state(settings: Settings, tuning: Tuning, redis: Redis, connections: HttpPoster) -> State:
    """Wires the gateway's objects together."""
    service = ServiceClient(connections, settings.queue_url, settings.service_keys, name="queue")
    queue = QueueClient(service)
    line_cache = LineCache(redis, queue, settings, tuning)
    users, rate_limits = Users(), RateLimits(settings)
    place_client = PlaceClient(queue, settings)
    return State(
        settings=settings,
        redis=redis,
        queue=queue,
        line_cache=line_cache,
        connections=connections,
        token_reader=TokenReader(settings, users),
        join_batcher=JoinBatcher(queue, line_cache, tuning),
        place_client=place_client,
        users=users,
        heartbeats=HeartbeatReporter(
            queue, service="gateway", sent=HEARTBEATS_SENT.inc, dropped=HEARTBEATS_DROPPED.inc
        ),
        rate_limits=rate_limits,
    )


async def _close(state: State) -> None:
    """Answers pending requests, then sends the final heartbeats: the queue must not take the silence that follows for
    lost heartbeats.
    """
    for close in (
        state.join_batcher.close, state.place_client.close, state.line_cache.close,
    ):  # fmt: skip
        await close()
    with suppress(Problem):
        await state.heartbeats.report(final=True)
