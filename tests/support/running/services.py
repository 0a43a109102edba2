"""Queue, inventory and orders in the test's process: their own apps on its databases, as neighbours of another service.

Each opens when it is called first, so a test that calls none pays nothing. Their loops stand still: what the test runs
is all that happens.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cache, partial
from types import ModuleType
from typing import Any, Generic, TypeVar
from unittest.mock import AsyncMock

import pytest
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
from services.queue.rooms.model import RequestedBy
from services.queue.settings import Settings as QueueSettings
from services.queue.state import State as QueueState
from services.queue.tuning import Tuning as QueueTuning
from shared import rpc
from shared.concurrency.background import Loops, Work
from shared.contracts.event_file import EventFile
from shared.process.preconditions import Preconditions
from shared.process.settings import ServiceSettings
from shared.security.auth import AdminKeys
from shared.web import parts
from shared.web.app import internal, public
from shared.web.parts import with_settings_of_parts
from tests.support.neighbours import Connections, FaultyNeighbour
from tests.support.running.apps import borrowed_app

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
