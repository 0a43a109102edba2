"""The queue as an application: opens PostgreSQL and Redis, builds the objects, runs the background loops."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI

from services.queue import internal
from services.queue.admin import room_actions
from services.queue.admin import rooms as admin_rooms
from services.queue.admission.ceiling import Ceilings, ControlLoop, LoadCache
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.admission.publisher import GAUGES_S, FramePublisher, refresh_gauges
from services.queue.admission.stock import StockCache
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import RedisLine
from services.queue.line.rules import LineRules
from services.queue.operations import RoomOperations
from services.queue.places.claims import Claims
from services.queue.places.heartbeats import Heartbeats
from services.queue.places.join import RENEW_S, Joins, PendingCommits
from services.queue.places.purchases import Purchases
from services.queue.places.reconcile import SlotReconciler
from services.queue.places.sessions import PassInvalidation, SessionEnder
from services.queue.rooms.store import Rooms
from services.queue.settings import Settings
from services.queue.state import State
from services.queue.tuning import DEFAULTS, Tuning
from shared import rpc
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient
from shared.messaging.log import EventLog, open_log
from shared.messaging.relay import Outbox
from shared.messaging.snapshots import SnapshotPublisher
from shared.postgres import engine as postgres_engine
from shared.process import clock_offsets
from shared.process.load import LOAD_S, Load
from shared.process.preconditions import REFRESH_S as ENGINES_S
from shared.process.preconditions import Preconditions, refresh_engine_gauges
from shared.redis import client as redis_client
from shared.rpc import ServiceClient
from shared.web.app import EVENT_FILE_MAX_BYTES, create_service
from shared.web.parts import Databases, with_settings_of_parts

RAISE_COUNTERS_S, WATCH_REDIS_S, COMMIT_JOINS_S, RECONCILE_S = 5.0, 0.2, 0.5, 2.0


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The application; its lifespan opens all connections."""
    settings = settings or with_settings_of_parts(Settings, "queue")()
    app = create_service(
        "queue",
        settings,
        title="queue",
        lifespan=_lifespan,
        routers=[room_actions.router, admin_rooms.router],
        internal_api=internal.API,
        checks=lambda app: app.state.preconditions.checks(),
        body_max_bytes=EVENT_FILE_MAX_BYTES,
    )
    app.state.tuning = tuning
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    db = postgres_engine.connect(settings, name="queue")
    client = redis_client.connect(settings.redis_url, service="queue")
    app.state.databases = Databases(client, db)
    app.state.preconditions = Preconditions("queue", settings, db, client)
    try:
        await app.state.preconditions.require()
        async with rpc.client() as pool:
            neighbour = ServiceClient(pool, settings.inventory_url, settings.service_keys, name="inventory")
            app.state.deps = state = build(settings, db, client, InventoryClient(neighbour), app.state.tuning)
            with suppress(*postgres_engine.DB_AWAY):
                await state.rooms.refresh()  # the first request must know in which order each line is called
            async with open_log(settings, client) as event_log:
                purchases = Purchases(db, client, event_log, state.sessions)
                async with Loops("queue") as loops:
                    _start(loops, settings, app.state.tuning, event_log, state, purchases=purchases)
                    yield
                await purchases.end()
            await state.gatekeeper.drain()
    finally:
        await client.aclose()
        await db.dispose()


def build(
    settings: Settings,
    db: postgres_engine.AsyncEngine,
    client: redis_client.Redis,
    inventory: InventoryClient,
    tuning: Tuning = DEFAULTS,
) -> State:
    """Builds every object from the open connections; starts nothing."""
    rooms, rules = Rooms(db, settings.features_off), LineRules()
    line = RedisLine(client, rooms.ranking)
    frames, heartbeats = FramePublisher(SnapshotPublisher(client)), Heartbeats(client, line, rooms)
    sessions = SessionEnder(db, line, inventory)
    recovery = Recovery(db, line, rooms, ramp=tuning.ramp_after_loss)
    gatekeeper = Gatekeeper(
        db=db, line=line, rooms=rooms, frames=frames, stock_cache=StockCache(client, inventory), heartbeats=heartbeats,
        sessions=sessions, recovery=recovery,
    )  # fmt: skip
    invalidation = PassInvalidation(inventory)
    ceilings = Ceilings(line, LoadCache(client))
    frames.throttles = ceilings.enforced
    control_loop = ControlLoop(rooms, gatekeeper, ceilings, invalidation)
    return State(
        line=line, rules=rules, rooms=rooms, heartbeats=heartbeats, recovery=recovery, sessions=sessions,
        gatekeeper=gatekeeper, pass_invalidation=invalidation, control_loop=control_loop,
        slot_reconciler=SlotReconciler(db, line, rooms, sessions, recovery),
        joins=Joins(
            db=db, line=line, rules=rules, rooms=rooms, tick=gatekeeper.tick, frame=gatekeeper.frame,
            pending_commits=PendingCommits(line, rooms), in_flight_max=tuning.join_batches_in_flight_max,
        ),
        claims=Claims(
            db=db, line=line, rules=rules, rooms=rooms, sessions=sessions, pass_keys=settings.pass_keys,
            checkout_keys=settings.checkout_keys, seal_keys=settings.service_keys, pass_invalidation=invalidation,
        ),
        operations=RoomOperations(
            rooms=rooms, line=line, rules=rules, gatekeeper=gatekeeper, recovery=recovery, control_loop=control_loop
        ),
    )  # fmt: skip


def _start(
    loops: Loops, settings: Settings, tuning: Tuning, event_log: EventLog, state: State, *, purchases: Purchases
) -> None:
    gatekeeper, db = state.gatekeeper, state.rooms.db
    loops.every(tuning.tick_s, gatekeeper.tick_all, name="queue gatekeeper")
    read_clocks = partial(clock_offsets.read_clocks, state.line.clocks, db, state.line.redis)
    loops.every(clock_offsets.REFRESH_S, read_clocks, name="queue clocks")
    loops.every(RENEW_S, state.joins.renew, name="queue renew")
    commit_joins = state.joins.pending_commits.commit_all
    loops.every(COMMIT_JOINS_S, commit_joins, name="queue pending commits")
    loops.every(WATCH_REDIS_S, state.recovery.watch, name="queue redis watch")
    loops.every(RECONCILE_S, state.slot_reconciler.run_once, name="queue reconcile")
    loops.every(RAISE_COUNTERS_S, gatekeeper.raise_counters, name="queue counters")
    loops.every(tuning.guard_interval_s, state.control_loop.run_once, name="queue control loop")
    loops.every(GAUGES_S, partial(refresh_gauges, gatekeeper.frames, db, state.line.redis), name="queue gauges")
    loops.every(ENGINES_S, partial(refresh_engine_gauges, "queue", db, state.line.redis), name="queue engine gauges")
    loops.keep(gatekeeper.stock_cache.listen, name="queue stock")
    loops.keep(state.control_loop.ceilings.load_cache.listen, name="queue load")
    loops.keep(purchases.read, name="queue purchases")
    loops.keep(Outbox(db, event_log, "queue", database=settings.postgres_url).run, name="queue outbox")
    loops.every(LOAD_S, partial(Load("queue").publish, state.line.redis), name="queue presence")
