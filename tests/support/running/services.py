"""Queue, inventory and orders in the test's process: their own apps on its databases, as neighbours of another service.

Each opens when it is called first, so a test that calls none pays nothing. Their loops stand still: what the test runs
is all that happens.

The real queue service as a neighbour in tests: its own app, PostgreSQL and Redis, with its loops off.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any, Generic, TypeVar
from unittest.mock import AsyncMock

import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import Row, insert, text
from starlette.types import ASGIApp, Receive, Scope, Send

from services.inventory import app as inventory_app
from services.inventory.settings import Settings as InventorySettings
from services.inventory.state import State as InventoryState
from services.inventory.tuning import DEFAULTS as INVENTORY_TUNING
from services.orders import app as orders_app
from services.orders.checkout.event_file import apply_event_file
from services.orders.settings import Settings as OrdersSettings
from services.orders.state import State as OrdersState
from services.orders.tuning import DEFAULTS as ORDERS_TUNING
from services.queue import app as queue_app
from services.queue import tables
from services.queue.admission.gatekeeper import admit_now
from services.queue.app import build, create_app
from services.queue.rooms.model import RequestedBy, ordering_of
from services.queue.rooms.store import Action, add_lanes
from services.queue.settings import Settings
from services.queue.settings import Settings as QueueSettings
from services.queue.state import State as QueueState
from services.queue.tuning import Tuning
from services.queue.tuning import Tuning as QueueTuning
from shared import rpc
from shared.concurrency.background import Loops, Work
from shared.contracts.event_file import EventFile, RoomPart
from shared.contracts.frames import LineFrame
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import Claimed, JoinBatch, JoinRequest, PlaceRef, PlacesQuestion
from shared.contracts.room_options import RoomOptions
from shared.process.preconditions import Preconditions
from shared.process.settings import ServiceSettings
from shared.runtime.clock import now_ms
from shared.security.auth import AdminKeys
from shared.web import parts
from shared.web.app import internal, public
from shared.web.parts import open_parts, parts_of, with_settings_of_parts
from tests.support.engines.database import Database
from tests.support.neighbours import Connections, FaultyNeighbour
from tests.support.running.serving import borrowed_app

LOOPS = {queue_app: "_start", inventory_app: "_start", orders_app: "_start_loops"}
SERVICES: tuple[tuple[ModuleType, type[ServiceSettings], object], ...] = (
    (queue_app, QueueSettings, QueueTuning(ramp_after_loss=False)),
    (inventory_app, with_settings_of_parts(InventorySettings, "inventory"), INVENTORY_TUNING),
    (orders_app, with_settings_of_parts(OrdersSettings, "orders"), ORDERS_TUNING),
)  # fmt: skip
TEST = RequestedBy("test")
PREFIXES = ("ONSALE_", "QUEUE_", "INVENTORY_", "ORDERS_")
State = TypeVar("State")


@cache
def settings_of(kind: type[ServiceSettings], redis_url: str, postgres_url: str, admin_keys: str) -> ServiceSettings:
    """Kept: to read them takes longer than to open a service with them. What a test puts into the environment is meant
    for the service under test, so none of it is in them.
    """
    urls: dict[str, Any] = {f"{name}_url": f"http://{name}" for name in ("queue", "inventory", "orders")}
    keys = AdminKeys(admin_keys)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(PREFIXES)]:
            patch.delenv(name)
        return kind(redis_url=redis_url, postgres_url=postgres_url, admin_keys=keys, log_requests=False, **urls)


class StillLoops(Loops):
    """Loops of features that stand still."""

    def every(self, interval_s: float, work: Work, *, name: str) -> None:
        """Starts none."""


class RealService(Generic[State]):
    """Both listeners of the service of `module`, which its first call opens, or `open`. `begins_with` runs
    before the first call that is not of `events_apart`. As on a server, a call ends though nobody waits for its answer
    any more.
    """

    def __init__(
        self, module: ModuleType, settings: Callable[[], ServiceSettings], tuning: object, events_apart: frozenset[str]
    ) -> None:
        self._module, self._settings, self._tuning = module, settings, tuning
        self._events_apart = frozenset(f"/internal{path}" for path in events_apart)
        self.begins_with: list[Callable[[State], Awaitable[object]]] = []
        self._stack, self._opening = AsyncExitStack(), asyncio.Lock()
        self._opened: tuple[State, ASGIApp, ASGIApp] | None = None
        self._has_begun = False
        self._calls: set[asyncio.Task[None]] = set()

    def leave_out(self, feature: str) -> None:
        """It opens without this feature."""
        changed = self._settings().model_copy(update={"features_off": frozenset({feature})})
        self._settings = lambda: changed

    async def open(self) -> State:
        """What the handlers of the service share."""
        state, *_ = await self._open()
        async with self._opening:
            if not self._has_begun:
                for begin in self.begins_with:
                    await begin(state)
                self._has_begun = True
        return state

    async def _open(self) -> tuple[State, ASGIApp, ASGIApp]:
        async with self._opening:
            if self._opened is None:
                app = self._stack.enter_context(borrowed_app(self._module.create_app, self._settings(), self._tuning))
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(parts, "Loops", StillLoops)
                    await self._stack.enter_async_context(app.router.lifespan_context(app))
                self.app = app
                self._opened = app.state.deps, internal(app), public(app)
            return self._opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = asyncio.create_task(self._answer(scope, receive, send))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.shield(call)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, inside, outside = await self._open()
        if scope["path"] not in self._events_apart:
            await self.open()
        await (inside if scope["path"].startswith("/internal") else outside)(scope, receive, send)

    async def close(self) -> None:
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._stack.aclose()


class Neighbours:
    """The three services as the one under test sees them: over a network that counts its calls and fails on command.
    Each begins with the event of `file`, whose room is open. Among each other nothing fails. Calls of `spared` paths
    never fail, and are about no event.
    """

    def __init__(
        self, file: EventFile, patch: pytest.MonkeyPatch, *, redis_url: str, postgres_url: str,
        spared: frozenset[str] = frozenset(), admin_keys: str = "",
    ) -> None:  # fmt: skip
        self._file = file
        for module, start_loops in LOOPS.items():
            patch.setattr(module, start_loops, lambda *_, **__: None)
        patch.setattr(Preconditions, "require", AsyncMock())  # the fixtures' databases are as they must be
        queue, inventory, orders = (
            RealService[Any](module, partial(settings_of, kind, redis_url, postgres_url, admin_keys), tuning, spared)
            for module, kind, tuning in SERVICES
        )
        queue.begins_with.append(self._open_room)
        inventory.begins_with.append(self._put_on_sale)
        orders.begins_with.append(self._set_prices)
        self.real_queue: RealService[QueueState] = queue
        self.real_inventory: RealService[InventoryState] = inventory
        self.real_orders: RealService[OrdersState] = orders
        self.queue, self.inventory, self.orders = (
            FaultyNeighbour(service, spared=spared) for service in (queue, inventory, orders)
        )
        self.connections = Connections({"queue": self.queue, "inventory": self.inventory, "orders": self.orders})
        patch.setattr(rpc, "client", Connections({"queue": queue, "inventory": inventory, "orders": orders}))

    async def _open_room(self, state: QueueState) -> None:
        await state.rooms.apply(self._file, TEST)
        await state.rooms.transition(self._file.event_id, "open", TEST)

    async def _put_on_sale(self, state: InventoryState) -> None:
        await state.event_files.apply(self._file, actor=TEST.name, reason=None, dry_run=False)
        await state.catalogue.refresh()

    async def _set_prices(self, state: OrdersState) -> None:
        await apply_event_file(
            state.db, self._file, actor=TEST.name, reason=None, dry_run=False, rules=state.prices,
            providers=state.providers,
        )  # fmt: skip

    async def close(self) -> None:
        for service in (self.real_orders, self.real_queue, self.real_inventory):
            await service.close()


TUNING = Tuning(ramp_after_loss=False)
SPARED = frozenset({"/heartbeats"})
ROOM = {"rate_per_s": 0.05, "burst": 10, "stock_coupling": False}  # nobody is called within 20 s unless the test does
PLACES = text(
    "SELECT join_seq, holder, end_reason FROM queue.place WHERE event_id = :event_id ORDER BY epoch, lane, join_seq"
)


class QueueService(FaultyNeighbour):
    """A test opens rooms and runs each tick. What it changes is published as always: each method that changes a line
    returns the frame that tells of it.
    """

    def __init__(self, app: FastAPI, database: Database, redis: Redis, inventory: InventoryClient) -> None:
        super().__init__(internal(app), spared=SPARED)
        self.state = app.state.deps = build(app.state.settings, database.db, redis, inventory, TUNING)
        self.database = database
        self.opened = False

    async def open(self, event_id: str = "show", *, epoch: int = 1, **settings: Any) -> LineFrame:
        """An open room, with these fields of its event file, written as the queue leaves one that an operator has
        opened: that takes three times as long. Nobody has heard of it, so its frame has to be asked for.
        """
        self.opened = True
        part = RoomPart.model_validate(ROOM | settings)
        row = part.model_dump(exclude=set(RoomOptions.model_fields)) | {
            "options": part.model_dump(mode="json", include=set(RoomOptions.model_fields)), "tickets_per_order": 6,
            "event_id": event_id, "epoch": epoch, "state": "open", "version": 2, "generation": 1,
            "redis_instance_id": "",
        }  # fmt: skip
        async with self.database.db.begin() as connection:
            await connection.execute(insert(tables.room).values(row))
            await add_lanes(connection, event_id, epoch, [one.lane for one in part.lanes])
            await ordering_of(part.ordering).begin(connection, event_id, epoch)
        room = await self.state.rooms.read(event_id)
        await self.state.recovery._write_redis(room, ramp=False)
        with self.frames_are_lost():
            return await self.tick(event_id)

    async def transition(self, action: Action, event_id: str = "show") -> LineFrame:
        await self.state.gatekeeper.apply_config(await self.state.rooms.transition(event_id, action, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def configure(self, event_id: str = "show", **settings: Any) -> LineFrame:
        """Changes the room as an operator does."""
        part = RoomPart.model_validate(settings)
        wanted = {name: getattr(part, name) for name in settings}
        await self.state.gatekeeper.apply_config(await self.state.rooms.change(event_id, wanted, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def reset(self, event_id: str = "show") -> LineFrame:
        await self.state.gatekeeper.apply_config(await self.state.rooms.reset(event_id, TEST))
        return await self.state.gatekeeper.frame(event_id)

    async def tick(self, event_id: str = "show") -> LineFrame:
        return await self.state.gatekeeper.tick(event_id)

    @contextmanager
    def frames_are_lost(self) -> Iterator[None]:
        """Meanwhile Pub/Sub loses what the queue publishes of its lines."""

        async def lose(*_: object) -> int:
            return 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.state.gatekeeper.frames._publisher, "publish", lose)
            yield

    @property
    def time_ms(self) -> int:
        """The time by the queue's clock."""
        return now_ms() + self.state.line.clock_offset_ms

    def advance_clock(self, seconds: float) -> None:
        self.state.line.clock_offset_ms += round(seconds * 1000)

    async def join(self, *holders: str, event_id: str = "show") -> None:
        """These holders join, in one batch."""
        joins = [JoinRequest(holder=holder) for holder in holders]
        batch = JoinBatch(event_id=event_id, batch_id=f"of-the-test-{holders[0]}", joins=joins)
        words = {one.word for one in (await self.state.joins.join(batch)).joined}
        assert words == {"joined"}

    async def call(self, count: int = 1, event_id: str = "show") -> LineFrame:
        """Calls the next fans, beyond the rate."""
        room = await self.state.rooms.get(event_id)
        assert await admit_now(self.state.line, self.state.gatekeeper, room, count) == count
        return await self.state.gatekeeper.frame(event_id)

    async def admit(self, holder: str, event_id: str = "show") -> Claimed:
        """This holder joins, is the next to be called, and claims the pass."""
        await self.join(holder, event_id=event_id)
        frame = await self.call(event_id=event_id)
        place = await self._place(frame.lanes[0].head_seq, holder, event_id)
        [claimed] = await self.state.claims.claim(place)
        assert claimed.word == "admitted"
        return claimed

    async def release(self, join_seq: int, holder: str, event_id: str = "show") -> None:
        """The session of this place is over, as a site says."""
        assert await self.state.claims.release(await self._place(join_seq, holder, event_id)) == ["completed"]

    async def _place(self, join_seq: int, holder: str, event_id: str) -> PlacesQuestion:
        epoch = (await self.state.rooms.get(event_id)).epoch
        place = PlaceRef(lane=0, join_seq=join_seq, holder=holder)
        return PlacesQuestion(event_id=event_id, epoch=epoch, places=[place])

    async def end(self, join_seq: int, reason: Any, event_id: str = "show") -> None:
        """Ends a place that has no session."""
        room = await self.state.rooms.get(event_id)
        ended = await self.state.sessions.end_places(
            event_id, room.epoch, [(0, join_seq)], end_reason=reason, unclaimed=True
        )
        assert ended == {(0, join_seq): reason}

    async def holders(self, event_id: str = "show") -> list[str]:
        """Who has joined, in the order of the line."""
        return [row.holder for row in await self._places(event_id)]

    async def ended(self, event_id: str = "show") -> dict[int, str]:
        """The places that have ended, and why."""
        return {row.join_seq: row.end_reason for row in await self._places(event_id) if row.end_reason}

    async def _places(self, event_id: str) -> Sequence[Row[Any]]:
        async with self.database.db.connect() as connection:
            return (await connection.execute(PLACES, {"event_id": event_id})).all()


@asynccontextmanager
async def queue_service(database: Database, redis: Redis, inventory: InventoryClient) -> AsyncIterator[QueueService]:
    """The queue, without rooms. A test that opens none uses no database."""
    with borrowed_app(create_app, Settings(log_requests=False), TUNING) as app:
        queue = QueueService(app, database, redis, inventory)
        async with Loops("queue", held=True) as loops, open_parts(queue.state, parts_of("queue"), loops):
            yield queue
        queue.may_answer.set()
    if queue.opened:
        await database.empty()
