"""Inventory's app: routes, connections, and background loops.

The lifespan refuses to start on unfit engines (see `Preconditions`), and closes what it opened.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI

from services.inventory import internal
from services.inventory.admin import events
from services.inventory.api import catalogue as api_catalogue
from services.inventory.api import reservations
from services.inventory.auth import HolderAuthenticator, PassClaimer
from services.inventory.gauges import REFRESH_S, LiveHoldGauges
from services.inventory.settings import Settings
from services.inventory.state import State
from services.inventory.store.drift import delete_old_drift
from services.inventory.tuning import DEFAULTS, Tuning
from shared import rpc
from shared.concurrency.background import Loops, Work
from shared.contracts.orders import OrdersClient
from shared.contracts.queue import QueueClient
from shared.messaging.log import open_log
from shared.messaging.relay import Outbox
from shared.postgres import engine as postgres_engine
from shared.process import clock_offsets
from shared.process.load import LOAD_S, Load
from shared.process.preconditions import REFRESH_S as ENGINES_S
from shared.process.preconditions import Preconditions, refresh_engine_gauges
from shared.redis import client as redis_client
from shared.rpc import ServiceClient
from shared.security.limits import FanLimit
from shared.security.tokens import PassReader, QueueTokens, Users
from shared.web.app import EVENT_FILE_MAX_BYTES, Checks, create_service
from shared.web.parts import Databases, with_settings_of_parts


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The ASGI app; its server must run the lifespan."""
    settings = settings or with_settings_of_parts(Settings, "inventory")()
    load = Load("inventory")
    app = create_service(
        "inventory", settings, title="inventory", lifespan=_lifespan,
        fast_routes=[*api_catalogue.FAST_ROUTES, *reservations.FAST_ROUTES],
        routers=[events.router, events.changes], internal_api=internal.API, checks=_checks, load=load,
        body_max_bytes=EVENT_FILE_MAX_BYTES,
    )  # fmt: skip
    app.state.tuning = tuning
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    tuning: Tuning = app.state.tuning
    db = postgres_engine.connect(settings, name="inventory")
    cache = redis_client.connect(settings.redis_url, service="inventory")
    app.state.databases = Databases(cache, db)
    app.state.preconditions = Preconditions("inventory", settings, db, cache)
    try:
        await app.state.preconditions.require()
        async with rpc.client() as client:
            orders = OrdersClient(ServiceClient(client, settings.orders_url, settings.service_keys, name="orders"))
            queue = QueueClient(ServiceClient(client, settings.queue_url, settings.service_keys, name="queue"))
            async with open_log(settings, cache) as event_log:
                app.state.deps = state = State(
                    settings, db, cache, orders, _authenticator(settings, tuning, queue), tuning=tuning
                )  # fmt: skip
                app.state.warnings = state.redis_stock.clocks.warnings
                outbox = Outbox(db, event_log, "inventory", database=settings.postgres_url)
                app.state.running = partial(_running, state, outbox, partial(app.state.load.publish, cache))
                yield
                for batcher in state.batchers.values():
                    await batcher.close()
                await state.authenticator.pass_claimer.close()
    finally:
        await cache.aclose()
        await db.dispose()


@asynccontextmanager
async def _running(state: State, outbox: Outbox, publish_load: Work) -> AsyncIterator[None]:
    """Events are read and loops work while the parts of features are open, which keep something of events."""
    with suppress(*postgres_engine.DB_AWAY):
        await state.catalogue.refresh()  # so that the first request finds the events
    async with Loops("inventory") as loops:
        _start(loops, state, outbox)
        loops.every(LOAD_S, publish_load, name="inventory.load")
        yield


def _authenticator(settings: Settings, tuning: Tuning, queue: QueueClient) -> HolderAuthenticator:
    waiting_max, cache_entries_max = tuning.claims_waiting_max, settings.cache_entries_max
    return HolderAuthenticator(
        passes=PassReader.of(settings),
        queue_tokens=QueueTokens(settings.queue_token_keys), users=Users(),
        pass_claimer=PassClaimer(queue, waiting_max=waiting_max, cache_entries_max=cache_entries_max),
        fan_limit=FanLimit(
            per_s=settings.fan_calls_per_s, keys_max=cache_entries_max, shared_by=settings.processes
        ),
        secure_cookies=settings.secure_cookies,
    )  # fmt: skip


def _start(loops: Loops, state: State, outbox: Outbox) -> None:
    tuning = state.tuning
    loops.keep(outbox.run, name="inventory.outbox")
    stock, db = state.redis_stock, state.autocommit_db
    read_clocks = partial(clock_offsets.read_clocks, stock.clocks, db, stock.redis)
    read_engines = partial(refresh_engine_gauges, "inventory", state.autocommit_db, state.redis_stock.redis)
    for run, interval_ms, name in (
        (state.redis_monitor.check, tuning.redis_check_interval_ms, "redis_monitor"),
        (state.expiry_worker.sweep, tuning.expiry_interval_ms, "expiry"),
        (state.expiry_worker.scan, tuning.expiry_scan_interval_ms, "expiry_scan"),
        (state.availability.publish, tuning.publish_interval_ms, "availability"),
        (read_clocks, 1000 * clock_offsets.REFRESH_S, "clocks"),
        (state.reconciler.run_once, 1000, "reconcile"),
        (LiveHoldGauges(state.autocommit_db).refresh, 1000 * REFRESH_S, "gauges"),
        (read_engines, 1000 * ENGINES_S, "engine_gauges"),
        (partial(delete_old_drift, state.db), 3_600_000, "drift_cleanup"),
    ):
        loops.every(interval_ms / 1000, run, name=f"inventory.{name}")


def _checks(app: FastAPI) -> Checks:
    state: State = app.state.deps
    preconditions: Preconditions = app.state.preconditions
    return {**preconditions.checks(), "catalogue": state.catalogue.check}
