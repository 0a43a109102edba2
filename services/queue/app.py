"""The queue as an app: opens the engines, ties the rooms together, keeps the loops going."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI

from services.queue import internal
from services.queue.access.access_code_store import AccessCodeStore
from services.queue.admin import access_codes, room_actions
from services.queue.admin import rooms as admin_rooms
from services.queue.admission.autotune import Autotune, ControlLoop
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.admission.overload import LoadCache, OverloadThrottle
from services.queue.admission.publisher import FramePublisher
from services.queue.admission.stock import StockCache
from services.queue.line.claims import Claims
from services.queue.line.heartbeats import Heartbeats
from services.queue.line.join import RENEW_S, Joins
from services.queue.line.pending_landings import PendingCommits
from services.queue.line.purchases import Purchases
from services.queue.line.redis_line import RedisLine
from services.queue.line.sessions import PassInvalidation, Revocations, Sessions
from services.queue.lottery.service import LotteryService
from services.queue.reconcile import SlotReconciler
from services.queue.recovery import Recovery
from services.queue.rooms.store import Rooms
from services.queue.settings import Settings
from services.queue.state import State
from services.queue.tables import outbox, outbox_lease
from shared.contracts.inventory import InventoryClient
from shared.messaging.log import EventLog
from shared.messaging.open_log import open_log
from shared.messaging.outbox import Relay
from shared.messaging.republish import Republisher
from shared.postgres import engine as postgres_engine
from shared.redis import client as redis_client
from shared.redis.snapshots import SnapshotPublisher
from shared.rpc import client as rpc_client
from shared.rpc.client import ServiceClient
from shared.runtime.background import Loops
from shared.runtime.preconditions import Preconditions
from shared.web import api_document
from shared.web.app import create_service

RAISE_S, WATCH_S, LAND_S, FORGET_S, LOTTERY_S, RECONCILE_S = 5.0, 0.2, 0.5, 3600.0, 1.0, 2.0


def create_app(settings: Settings | None = None) -> FastAPI:
    """The queue, ready to be served; its lifespan opens what it needs."""
    settings = settings or Settings()
    app = create_service(
        "queue",
        settings,
        title="queue",
        lifespan=_lifespan,
        routers=[room_actions.router, admin_rooms.router, access_codes.router],
        internal_routers=[internal.router],
        internal_hot_routes=internal.HOT_ROUTES,
        checks=_checks,
    )
    app.state.admin_keys = settings.admin_keys
    api_document.complete(app)
    return app


def _checks(app: FastAPI) -> dict[str, Callable[[], Awaitable[object]]]:
    ground: Preconditions = app.state.ground
    return ground.checks()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    db = postgres_engine.connect(settings, name="queue")
    client = redis_client.connect(settings.redis_url)
    app.state.ground = Preconditions("queue", settings, db, client)
    try:
        await app.state.ground.refuse_unfit()
        async with rpc_client.client() as pool:
            neighbour = ServiceClient(pool, settings.inventory_url, settings.service_keys, name="inventory")
            app.state.queue = queue = build(settings, db, client, InventoryClient(neighbour))
            with suppress(*postgres_engine.DB_AWAY):
                await queue.rooms.refresh()  # whoever is asked first knows in which order each line is called
            async with open_log(settings, client) as event_log, Loops() as loops:
                _start(loops, settings, db, event_log, queue)
                yield
            await queue.gatekeeper.drain()
    finally:
        await client.aclose()
        await db.dispose()


def build(
    settings: Settings, db: postgres_engine.AsyncEngine, client: redis_client.Redis, inventory: InventoryClient
) -> State:
    """Ties everything to its handles; starts nothing."""
    rooms = Rooms(db)
    line = RedisLine(client, rooms.draw, clock_offset_ms=settings.clock_offset_ms)
    frames, life = FramePublisher(SnapshotPublisher(client, settings.pubsub)), Heartbeats(client, line, rooms)
    sessions = Sessions(db, line, inventory, Revocations(client))
    recovery = Recovery(db, line, rooms, ramp=settings.ramp_after_loss)
    board = StockCache(client, inventory)
    gatekeeper = Gatekeeper(db, line, rooms, frames, board, life, sessions, recovery)
    floors = PassInvalidation(inventory)
    guard = OverloadThrottle(
        line, LoadCache(client), round(settings.guard_step_s * 1000), round(settings.throttle_recovery_s * 1000)
    )
    frames.throttles = guard.enforced
    return State(
        line=line,
        rooms=rooms,
        joins=Joins(
            db,
            line,
            rooms,
            gatekeeper.turn,
            gatekeeper.frame,
            PendingCommits(line, rooms),
            settings.join_batches_in_flight_max,
        ),
        claims=Claims(
            db, line, rooms, sessions, settings.pass_keys, settings.checkout_keys, settings.service_keys, floors
        ),
        life=life,
        recovery=recovery,
        reconciling=SlotReconciler(db, line, rooms, sessions, recovery),
        sessions=sessions,
        gatekeeper=gatekeeper,
        lottery=LotteryService(db, rooms, line, recovery),
        codes=AccessCodeStore(db),
        floors=floors,
        steering=ControlLoop(rooms, gatekeeper, guard, Autotune(rooms, settings.autotune_interval_s), floors),
    )


def _start(
    loops: Loops, settings: Settings, db: postgres_engine.AsyncEngine, event_log: EventLog, queue: State
) -> None:
    gatekeeper = queue.gatekeeper
    relay = Relay(db, event_log, outbox, outbox_lease)
    purchases = Purchases(db, event_log, queue.sessions)
    loops.every(settings.tick_s, gatekeeper.tick_all, name="queue gatekeeper")
    loops.every(1.0, partial(queue.line.clocks.look, db, queue.line.redis), name="queue clocks")
    loops.every(RENEW_S, queue.joins.renew, name="queue renew")
    loops.every(LAND_S, queue.joins.landings.land_all, name="queue land")
    loops.every(WATCH_S, queue.recovery.watch, name="queue watch")
    loops.every(RECONCILE_S, queue.reconciling.turn, name="queue reconcile")
    loops.every(LOTTERY_S, queue.lottery.advance, name="queue lottery")
    loops.every(RAISE_S, gatekeeper.raise_counters, name="queue counters")
    loops.every(settings.guard_interval_s, queue.steering.turn, name="queue steering")
    loops.keep(gatekeeper.board.listen, name="queue stock")
    loops.keep(queue.steering.guard.board.listen, name="queue load")
    loops.keep(purchases.read, name="queue purchases")
    loops.keep(relay.run, name="queue relay")
    loops.every(1.0, Republisher(db, event_log, outbox).look, name="queue log")
    loops.every(FORGET_S, relay.forget, name="queue forget")
