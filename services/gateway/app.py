"""The gateway's app: opens its connections, starts its background loops and mounts its API.

The gateway is ready without Redis: it then requests frames from the queue, and joining goes on.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from fastapi import FastAPI

from services.gateway.api import event_documents, forms, lottery, pages, preview, problem_pages, public_keys
from services.gateway.api import queue as api_queue
from services.gateway.catalogue_page import CataloguePages
from services.gateway.checks import own_checks
from services.gateway.documents import EventPages
from services.gateway.fan_pages.own_event import OwnEventParts
from services.gateway.fan_pages.seat_tables import SeatTables
from services.gateway.metrics import HEARTBEATS_DROPPED, HEARTBEATS_SENT
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.rate_limits import PlainPageLimit, RateLimits
from services.gateway.settings import Settings
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS, Tuning
from services.gateway.waiting_line.cache import POLL_S, LineCache
from services.gateway.waiting_line.join_batcher import JoinBatcher
from services.gateway.waiting_line.lottery_cache import LotteryCache
from services.gateway.waiting_line.place_client import PlaceClient
from shared.checks.endpoint import Databases
from shared.clients.heartbeats import HeartbeatReporter
from shared.clients.user_places import UserPlaces
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.queue import LotteryClient, QueueClient
from shared.errors.problems import Problem
from shared.process.load import LOAD_S, Load
from shared.redis.client import Redis, connect
from shared.rpc import ServiceClient, client
from shared.security.user_jwt import UserJwtReader, user_jwt_reader
from shared.web.app import create_service
from shared.web.parts import with_settings_of_parts


class Services(NamedTuple):
    """The other services, as the gateway calls them."""

    queue: ServiceClient
    inventory: ServiceClient
    orders: ServiceClient


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The gateway, not yet connected to anything."""
    chosen = settings or with_settings_of_parts(Settings, "gateway")()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            redis = connect(chosen.redis_url, service="gateway")
            stack.push_async_callback(redis.aclose)
            app.state.databases = Databases(redis)
            pool = await stack.enter_async_context(client())
            services = Services(
                queue=ServiceClient(pool, chosen.queue_url, chosen.service_keys, name="queue"),
                inventory=ServiceClient(pool, chosen.inventory_url, chosen.service_keys, name="inventory"),
                orders=ServiceClient(pool, chosen.orders_url, chosen.service_keys, name="orders"),
            )
            users = await stack.enter_async_context(user_jwt_reader(chosen))
            state = app.state.deps = build_state(chosen, tuning, redis, services, users)
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
        routers=[public_keys.router, preview.router, problem_pages.router],
        fast_routes=[
            *api_queue.FAST_ROUTES,
            *lottery.FAST_ROUTES,
            *pages.FAST_ROUTES,
            *event_documents.FAST_ROUTES,
        ],
        mounts=pages.MOUNTS,
        own_checks=partial(own_checks, chosen),
        forms=forms.FORMS,
    )


def build_state(settings: Settings, tuning: Tuning, redis: Redis, services: Services, users: UserJwtReader) -> State:
    """Wires the gateway's objects together."""
    queue = QueueClient(services.queue)
    line_cache = LineCache(redis, queue, settings, tuning)
    token_reader, rate_limits = TokenReader(settings, users), RateLimits(settings)
    place_client = PlaceClient(queue, settings)
    inventory, orders = InventoryClient(services.inventory), OrdersClient(services.orders)
    return State(
        settings=settings,
        redis=redis,
        queue=queue,
        line_cache=line_cache,
        event_pages=EventPages(line_cache, inventory, orders, settings.public_url),
        catalogue_pages=CataloguePages(line_cache, inventory, orders),
        own_event_parts=OwnEventParts(inventory, orders, SeatTables(inventory)),
        plain_pages=PlainPageLimit(
            per_s=settings.plain_pages_per_s, addresses_max=tuning.rate_limit_keys_max, shared_by=settings.processes
        ),
        orders=orders,
        token_reader=token_reader,
        join_batcher=JoinBatcher(queue, line_cache, tuning, processes=settings.processes),
        place_client=place_client,
        user_places=UserPlaces(
            queue,
            name="gateway",
            waiting_max=tuning.pending_requests_max,
            cache_entries_max=settings.cache_entries_max,
        ),
        heartbeats=HeartbeatReporter(
            queue, service="gateway", sent=HEARTBEATS_SENT.inc, dropped=HEARTBEATS_DROPPED.inc
        ),
        lottery_cache=LotteryCache(LotteryClient(services.queue)),
        rate_limits=rate_limits,
    )


async def _close(state: State) -> None:
    """Answers pending requests, then sends the final heartbeats: the queue must not take the silence that follows for
    lost heartbeats.
    """
    for close in (
        state.join_batcher.close, state.place_client.close, state.user_places.close, state.event_pages.close,
        state.catalogue_pages.close, state.own_event_parts.seat_tables.close, state.line_cache.close,
        state.lottery_cache.close,
    ):  # fmt: skip
        await close()
    with suppress(Problem):
        await state.heartbeats.report(final=True)
