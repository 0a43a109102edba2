"""Inventory as a service: opens the connections, starts the loops, answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI
from starlette.routing import Route

from services.inventory import internal, tables
from services.inventory.admin import events, reconcile, stock
from services.inventory.api import catalogue as api_catalogue
from services.inventory.api import reservations
from services.inventory.api.address_limits import AddressHolds
from services.inventory.api.auth import HolderAuthenticator, PassClaimer
from services.inventory.api.openapi import document_reserve
from services.inventory.catalogue.layout import EventCache
from services.inventory.reconcile.oversell_refunds import OversellRefunds
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.reconcile.reconciler import forget as forget_findings
from services.inventory.redis_stock.availability import AvailabilityPublisher
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from services.inventory.reservations.expiry_worker import ExpiryWorker
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import BatchSizer
from services.inventory.reservations.returns import ReturnService, TicketReturns
from services.inventory.settings import Settings
from services.inventory.state import State
from services.inventory.stock.allotments import AllotmentOpener
from shared.contracts.orders import OrdersClient
from shared.contracts.queue import QueueClient
from shared.messaging.open_log import open_log
from shared.messaging.outbox import Relay
from shared.messaging.republish import Republisher
from shared.postgres import engine as postgres_engine
from shared.redis import client as redis_client
from shared.redis.snapshots import SnapshotPublisher
from shared.rpc import client as rpc_client
from shared.rpc.client import ServiceClient
from shared.rpc.user_places import UserPlaces
from shared.runtime.background import Loops
from shared.runtime.clock_offsets import Clocks
from shared.runtime.load_meter import LoadMeter
from shared.runtime.preconditions import Preconditions
from shared.security.token_buckets import Buckets
from shared.security.tokens import PassReader, QueueTokens
from shared.security.user_jwt import Users, signed_in
from shared.web import api_document
from shared.web.app import Checks, create_service


def create_app(settings: Settings | None = None) -> FastAPI:
    """The app; whoever runs it enters its lifespan."""
    settings = settings or Settings()
    meter = LoadMeter("inventory")
    reserve = Route(reservations.Reserve.path, reservations.Reserve, methods=["POST"])
    app = create_service(
        "inventory", settings, title="inventory", lifespan=_lifespan, hot_routes=[reserve],
        routers=[api_catalogue.router, reservations.router, events.router, reconcile.router, stock.router],
        internal_routers=[internal.router], internal_hot_routes=internal.HOT_ROUTES, checks=_checks, meter=meter,
    )  # fmt: skip
    app.state.admin_keys, app.state.meter = settings.admin_keys, meter
    document_reserve(app)
    api_document.complete(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    db = postgres_engine.connect(settings, name="inventory")
    cache = redis_client.connect(settings.redis_url)
    app.state.ground = Preconditions("inventory", settings, db, cache)
    try:
        await app.state.ground.refuse_unfit()
        async with rpc_client.client() as client:
            orders = OrdersClient(ServiceClient(client, settings.orders_url, settings.service_keys, name="orders"))
            queue = QueueClient(ServiceClient(client, settings.queue_url, settings.service_keys, name="queue"))
            async with signed_in(settings) as users, open_log(settings, cache) as event_log, Loops() as loops:
                app.state.deps = state = build_state(settings, db, cache, orders, _admissions(settings, queue, users))
                app.state.warnings = state.redis_stock.clocks.warnings
                with suppress(*postgres_engine.DB_AWAY):
                    await state.catalogue.refresh()  # whoever is asked first knows what is sold
                again = Republisher(db, event_log, tables.outbox)
                _start(loops, state, Relay(db, event_log, tables.outbox, tables.outbox_lease), again)
                show_load = partial(app.state.meter.show, cache, db)
                loops.every(settings.load_interval_ms / 1000, show_load, name="inventory.load")
                yield
                for reserver in state.reservers.values():
                    await reserver.close()
                await state.admissions.turns.close()
                await state.admissions.user_places.close()
    finally:
        await cache.aclose()
        await db.dispose()


def _admissions(settings: Settings, queue: QueueClient, users: Users) -> HolderAuthenticator:
    waiting_max, cache_entries_max = settings.claims_waiting_max, settings.cache_entries_max
    return HolderAuthenticator(
        PassReader(settings.pass_public_keys, seal=settings.service_keys),
        QueueTokens(settings.queue_token_keys), users,
        UserPlaces(queue, name="inventory", waiting_max=waiting_max, cache_entries_max=cache_entries_max),
        PassClaimer(queue, waiting_max=waiting_max, cache_entries_max=cache_entries_max), settings.secure_cookies,
    )  # fmt: skip


def build_state(
    settings: Settings,
    db: postgres_engine.AsyncEngine,
    cache: redis_client.Redis,
    orders: OrdersClient,
    admissions: HolderAuthenticator,
) -> State:
    redis_stock = RedisStock(cache, clocks=Clocks("inventory"), clock_offset_ms=settings.clock_offset_ms)
    reading = db.execution_options(isolation_level="AUTOCOMMIT")
    catalogue = EventCache(reading)
    payments = Payments(db, redis_stock, catalogue)
    watcher = RedisStockMonitor(db, redis_stock, catalogue)
    reconciler = Reconciler(
        db, redis_stock, catalogue, ready_since_s=watcher.ready_since_s, interval_s=settings.reconcile_interval_s
    )
    returns = ReturnService(db, redis_stock)
    board = AvailabilityPublisher(reading, redis_stock, catalogue, SnapshotPublisher(cache, settings.pubsub))
    return State(
        settings, db, reading, redis_stock, catalogue, board, payments, watcher,
        ExpiryWorker(db, redis_stock, catalogue, payments, orders), reconciler, returns,
        TicketReturns(db, redis_stock, returns), OversellRefunds(db, returns, orders), admissions,
        BatchSizer(alone_max=settings.hold_batch_max, beside_max=settings.hold_batch_max_contended),
        AddressHolds(most=settings.address_holds_max, keys_max=settings.cache_entries_max),
        Buckets(
            per_s=1 / settings.given_back_pause_s, burst=settings.given_back_at_once,
            keys_max=settings.cache_entries_max,
        ),
    )  # fmt: skip


def _start(loops: Loops, state: State, relay: Relay, again: Republisher) -> None:
    settings = state.settings
    loops.every(settings.redis_check_interval_ms / 1000, state.watcher.check, name="inventory.watch")
    loops.every(settings.expiry_interval_ms / 1000, state.sweeper.sweep, name="inventory.sweep")
    loops.every(settings.expiry_scan_interval_ms / 1000, state.sweeper.scan, name="inventory.scan")
    opener = AllotmentOpener(state.db, state.redis_stock, state.catalogue)
    loops.every(settings.allotment_interval_ms / 1000, opener.turn, name="inventory.open")
    loops.every(settings.publish_interval_ms / 1000, state.board.publish, name="inventory.show")
    loops.every(
        1.0, partial(state.redis_stock.clocks.look, state.reading, state.redis_stock.redis), name="inventory.clocks"
    )
    loops.every(1.0, state.reconciler.turn, name="inventory.reconcile")
    loops.every(1.0, state.refunding.turn, name="inventory.refund")
    loops.keep(relay.run, name="inventory.relay")
    loops.every(1.0, again.look, name="inventory.log")
    loops.every(3600.0, relay.forget, name="inventory.forget")
    loops.every(3600.0, lambda: forget_findings(state.db), name="inventory.forget_findings")


def _checks(app: FastAPI) -> Checks:
    state: State = app.state.deps
    ground: Preconditions = app.state.ground
    return {**ground.checks(), "catalogue": state.catalogue.check}
