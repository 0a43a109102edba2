"""Orders as an app: opens every connection, starts the workers, and hands each room what it needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
from fastapi import FastAPI
from sqlalchemy import text

from services.orders import admin, api, internal, webhooks
from services.orders.callers import Callers
from services.orders.cashier import Cashier
from services.orders.checkout import Checkout
from services.orders.frames import Repeater
from services.orders.jobs import Jobs
from services.orders.payments.provider import Provider
from services.orders.payments.sandbox import Sandbox
from services.orders.room import Room
from services.orders.settings import Settings
from services.orders.tables import outbox, outbox_lease
from services.orders.till import Failpoint, no_failpoint
from services.orders.workers import Workers
from shared import http, postgres, redis
from shared.contracts.frames import FRAME_REPEAT_S
from shared.contracts.inventory import InventoryClient
from shared.http import Neighbour
from shared.lifecycle import Loops
from shared.outbox import Relay
from shared.service import Checks, create_service
from shared.tokens import PassReader

LOCK_TIMEOUT_MS = 2000  # a request with the same key waits no longer for the first
PROVIDER_CONNECTIONS_MAX = 64


def create_app(settings: Settings | None = None, *, failpoint: Failpoint = no_failpoint) -> FastAPI:
    """The orders service. `failpoint` lets a test stop the cashier between two steps."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.room = room = await _open(stack, settings, failpoint)
            relay = Relay(room.engine, room.redis, outbox, outbox_lease)
            repeater = Repeater(room.engine, room.redis)
            loops = await stack.enter_async_context(Loops())
            loops.keep(relay.run, name="orders.relay")
            loops.every(3600, relay.forget, name="orders.relay_forget")
            loops.every(FRAME_REPEAT_S, repeater.turn, name="orders.frames")
            loops.keep(lambda: room.jobs.listen(room.workers.wake), name="orders.jobs")
            loops.keep(room.workers.run, name="orders.workers")
            yield

    app = create_service(
        "orders", settings, title="orders", lifespan=lifespan, checks=_checks,
        routers=[api.router, webhooks.router, admin.router], internal_routers=[internal.router],
    )  # fmt: skip
    app.state.admin_keys = settings.admin_keys
    return app


async def _open(stack: AsyncExitStack, settings: Settings, failpoint: Failpoint) -> Room:
    engine = postgres.connect(
        settings.postgres_url, pool_max=settings.postgres_pool_max, name="orders", lock_timeout_ms=LOCK_TIMEOUT_MS
    )
    stack.push_async_callback(engine.dispose)
    cache = redis.connect(settings.redis_url)
    stack.push_async_callback(cache.aclose)
    neighbours = await stack.enter_async_context(http.client())
    inventory = InventoryClient(Neighbour(neighbours, settings.inventory_url, settings.service_keys, name="inventory"))
    providers = await _providers(stack, settings)
    cashier = Cashier(
        engine=engine, redis=cache, inventory=inventory, providers=providers, settings=settings, failpoint=failpoint
    )
    jobs = Jobs(settings.postgres_url, accept_s=settings.job_accept_s)
    workers = Workers(engine, cashier, settings)
    callers = Callers(PassReader(settings.pass_public_keys), settings.order_token_keys)
    checkout = Checkout(engine, inventory, providers, jobs, workers, settings.order_token_keys, settings.customer_keys)
    return Room(settings, engine, cache, callers, checkout, workers, jobs, providers)


async def _providers(stack: AsyncExitStack, settings: Settings) -> dict[str, Provider]:
    limits = httpx.Limits(max_connections=PROVIDER_CONNECTIONS_MAX, max_keepalive_connections=PROVIDER_CONNECTIONS_MAX)
    client = await stack.enter_async_context(httpx.AsyncClient(limits=limits, trust_env=False))
    sandbox = Sandbox(
        client, settings.sandbox_url, secrets=settings.sandbox_webhook_secrets, timeout_s=settings.provider_timeout_s
    )
    return {sandbox.name: sandbox}


def _checks(app: FastAPI) -> Checks:
    room: Room = app.state.room

    async def ledger() -> None:
        async with room.engine.connect() as connection:
            await connection.execute(text("SELECT 1"))

    return {"postgres": ledger, "redis": room.redis.ping}
