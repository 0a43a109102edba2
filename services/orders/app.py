"""The orders service as an app: opens connections, starts the background loops and hands each part what it needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI

from services.orders import internal
from services.orders.admin import orders
from services.orders.api import orders as api_orders
from services.orders.api import tickets as api_tickets
from services.orders.auth import CustomerAuthenticator
from services.orders.checkout.checkout import Checkout, OrderWriter
from services.orders.checkout.requests import check_address
from services.orders.pricing.quote import Prices
from services.orders.providers import open_providers
from services.orders.settings import Settings
from services.orders.state import State
from services.orders.steps.run import (
    Failpoint,
    Heartbeat,
    InventoryBatcher,
    MailPort,
    Parts,
    ProviderClient,
    no_failpoint,
)
from services.orders.store import provider_reports
from services.orders.store.provider_reports import WebhookInbox
from services.orders.store.store import Frames, OrderStore
from services.orders.tickets.show import ShowCache
from services.orders.tickets.tickets import PaperPorts
from services.orders.tuning import DEFAULTS, Tuning
from services.orders.worker.worker import OrderProcessor, Worker
from shared import rpc
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient
from shared.http.outgoing import external_http_client
from shared.messaging.log import EventLog, open_log
from shared.messaging.relay import Outbox
from shared.postgres import engine as postgres_engine
from shared.postgres.settings import Waits
from shared.process import clock_offsets
from shared.process.load import LOAD_S, Load, PurchaseWork
from shared.process.preconditions import REFRESH_S as ENGINES_S
from shared.process.preconditions import Preconditions, refresh_engine_gauges
from shared.redis import client as redis_client
from shared.rpc import ServiceClient
from shared.runtime.clock import Clocks
from shared.security.limits import FanLimit
from shared.security.tokens import PassReader, Users
from shared.web.app import EVENT_FILE_MAX_BYTES, create_service
from shared.web.parts import Databases, with_settings_of_parts


def create_app(
    settings: Settings | None = None, tuning: Tuning = DEFAULTS, *, failpoint: Failpoint = no_failpoint
) -> FastAPI:
    """The orders service. `failpoint` lets a test stop an order's processing between two steps."""
    settings = settings or with_settings_of_parts(Settings, "orders")()
    load = Load("orders")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.deps = state = await _open(stack, settings, tuning, failpoint, load.purchases)
            app.state.databases = Databases(state.redis, state.db)
            app.state.preconditions = Preconditions("orders", settings, state.db, state.redis)
            app.state.warnings = state.store.clocks.warnings
            await app.state.preconditions.require()
            event_log = await stack.enter_async_context(open_log(settings, state.redis))
            app.state.running = partial(_running, state, event_log, load)
            yield

    return create_service(
        "orders", settings, title="orders", lifespan=lifespan, load=load,
        checks=lambda app: app.state.preconditions.checks(),
        fast_routes=[*api_orders.FAST_ROUTES, *api_tickets.FAST_ROUTES],
        routers=[orders.router, orders.events], internal_api=internal.API, body_max_bytes=EVENT_FILE_MAX_BYTES,
    )  # fmt: skip


@asynccontextmanager
async def _running(state: State, event_log: EventLog, load: Load) -> AsyncIterator[None]:
    """The loops work while the parts of features are open: mail needs what papers offer."""
    async with Loops("orders") as loops:
        _start_loops(loops, state, event_log)
        loops.every(LOAD_S, partial(load.publish, state.redis), name="orders.load")
        yield


def _start_loops(loops: Loops, state: State, event_log: EventLog) -> None:
    db, redis, store = state.db, state.redis, state.store
    clocks = partial(clock_offsets.read_clocks, store.clocks, db, redis)
    comparison = partial(provider_reports.compare_or_rest, store, state.providers)
    loops.keep(Outbox(db, event_log, "orders", database=state.settings.postgres_url).run, name="orders.outbox")
    loops.keep(state.worker.run, name="orders.workers")
    loops.keep(state.worker.listen, name="orders.listen")
    loops.every(clock_offsets.REFRESH_S, clocks, name="orders.clocks")
    loops.every(ENGINES_S, partial(refresh_engine_gauges, "orders", db, redis), name="orders.engine_gauges")
    loops.every(provider_reports.COMPARISON_S, comparison, name="orders.comparison")


async def _open(
    stack: AsyncExitStack, settings: Settings, tuning: Tuning, failpoint: Failpoint, load: PurchaseWork
) -> State:
    """Opens every connection and wires the parts; `stack` closes them again."""
    db = postgres_engine.connect(settings, name="orders", waits=Waits(lock_timeout_ms=tuning.lock_timeout_ms))
    stack.push_async_callback(db.dispose)
    redis = redis_client.connect(settings.redis_url, service="orders")
    stack.push_async_callback(redis.aclose)
    services = await stack.enter_async_context(rpc.client())
    inventory_service = ServiceClient(services, settings.inventory_url, settings.service_keys, name="inventory")
    inventory = await stack.enter_async_context(InventoryBatcher(InventoryClient(inventory_service)))
    store = await stack.enter_async_context(OrderStore(db, Clocks("orders")))
    frames = await stack.enter_async_context(Frames(redis))
    outgoing = external_http_client(connections_max=tuning.in_work_max)
    heartbeat = Heartbeat(tuning.takeover_s)
    providers = open_providers(ProviderClient(await stack.enter_async_context(outgoing), load, heartbeat), settings)
    stack.push_async_callback((shows := ShowCache(store.db)).close)
    parts = Parts(
        store=store, frames=frames, inventory=inventory, providers=providers, settings=settings, shows=shows,
        mail=(mail := MailPort()), failpoint=failpoint, tuning=tuning,
    )  # fmt: skip
    worker = Worker(store, OrderProcessor(parts), settings, load=load, heartbeat=heartbeat, tuning=tuning)
    stack.push_async_callback(worker.close)
    webhook_inbox = WebhookInbox(store, worker.in_work, linger_s=tuning.webhook_linger_s)
    stack.push_async_callback(webhook_inbox.close)
    users = Users()
    fan_limit = FanLimit(
        per_s=settings.fan_calls_per_s, keys_max=settings.cache_entries_max, shared_by=settings.processes
    )
    prices = await stack.enter_async_context(Prices(store.db))
    writer = await stack.enter_async_context(OrderWriter(db, worker, store.clocks, prices))
    return State(
        settings=settings, tuning=tuning, db=db, store=store, frames=frames, redis=redis, worker=worker,
        shows=shows, mail=mail, failpoint=failpoint,
        users=users,
        authenticator=CustomerAuthenticator(
            PassReader.of(settings), settings.order_token_keys, users, fan_limit, settings.secure_cookies
        ),
        checkout=Checkout(
            store=store, inventory=inventory, writer=writer, worker=worker, providers=providers,
            capture=settings.captures_at_once, load=load,
            prices=prices,
            order_token_keys=settings.order_token_keys, customer_keys=settings.customer_keys,
            check_address=partial(check_address, mail),
        ),
        webhook_inbox=webhook_inbox, providers=providers, inventory=inventory,
        papers=PaperPorts(), prices=prices,
    )  # fmt: skip
