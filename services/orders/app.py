"""Orders as an app: opens every connection, starts the workers, and hands each room what it needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import httpx
from fastapi import FastAPI
from sqlalchemy import text

from services.orders import admin, api, charges, internal
from services.orders.book import Book
from services.orders.callers import Callers
from services.orders.cashier import Cashier
from services.orders.checkout import Checkout
from services.orders.frames import Repeater
from services.orders.jobs import Jobs
from services.orders.look import LOOK
from services.orders.openapi import document_hot_calls
from services.orders.ordering import PLACE
from services.orders.payments.provider import Provider
from services.orders.payments.sandbox import Sandbox
from services.orders.placing import Placing
from services.orders.room import Room
from services.orders.settings import Settings
from services.orders.stock import Stock
from services.orders.tables import outbox, outbox_lease
from services.orders.till import Failpoint, no_failpoint
from services.orders.webhooks import WEBHOOK, Inbox
from services.orders.workers import Workers
from shared import http, postgres, redis
from shared.contracts.frames import FRAME_REPEAT_S
from shared.contracts.inventory import InventoryClient
from shared.http import Neighbour
from shared.lifecycle import Loops
from shared.load import LoadMeter
from shared.outbox import Relay
from shared.service import Checks, create_service
from shared.tokens import PassReader
from shared.user_jwt import signed_in

LOCK_TIMEOUT_MS = 2000  # a request with the same key waits no longer for the first


def create_app(settings: Settings | None = None, *, failpoint: Failpoint = no_failpoint) -> FastAPI:
    """The orders service. `failpoint` lets a test stop the cashier between two steps."""
    settings = settings or Settings()
    meter = LoadMeter("orders")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.room = room = await _open(stack, settings, failpoint)
            relay = Relay(room.engine, room.redis, outbox, outbox_lease)
            repeater = Repeater(room.book.engine, room.redis)
            loops = await stack.enter_async_context(Loops())
            loops.keep(relay.run, name="orders.relay")
            loops.every(3600, relay.forget, name="orders.relay_forget")
            loops.every(FRAME_REPEAT_S, repeater.turn, name="orders.frames")
            show_load = partial(meter.show, room.redis, room.engine)
            loops.every(settings.load_interval_ms / 1000, show_load, name="orders.load")
            loops.keep(lambda: room.jobs.listen(room.workers.wake), name="orders.jobs")
            loops.keep(room.workers.run, name="orders.workers")
            loops.every(settings.lease_s / 3, room.workers.renew, name="orders.leases")
            yield

    app = create_service(
        "orders", settings, title="orders", lifespan=lifespan, hot_routes=[PLACE, LOOK, WEBHOOK], checks=_checks,
        routers=[api.router, admin.router, charges.router], internal_routers=[internal.router], meter=meter,
    )  # fmt: skip
    app.state.admin_keys = settings.admin_keys
    document_hot_calls(app)
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
    stock = await stack.enter_async_context(Stock(inventory))
    book = await stack.enter_async_context(Book(engine, cache))
    providers = await _providers(stack, settings)
    cashier = Cashier(book=book, stock=stock, providers=providers, settings=settings, failpoint=failpoint)
    jobs = Jobs(settings.postgres_url, accept_s=settings.job_accept_s)
    placing = Placing(engine, jobs)
    stack.push_async_callback(placing.close)
    inbox = Inbox(engine, jobs)
    stack.push_async_callback(inbox.close)
    workers = Workers(book.engine, cashier, settings)
    users = await stack.enter_async_context(signed_in(settings))
    passes = PassReader(settings.pass_public_keys, seal=settings.service_keys)
    callers = Callers(passes, settings.order_token_keys, users)
    keys = settings.order_token_keys, settings.customer_keys
    checkout = Checkout(engine, book, stock, placing, providers, workers, *keys)
    return Room(settings, engine, book, cache, callers, checkout, workers, jobs, inbox, providers)


async def _providers(stack: AsyncExitStack, settings: Settings) -> dict[str, Provider]:
    most = settings.workers + settings.inline_max  # nobody waits for a connection
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
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
