"""The real queue service with a real inventory, on PostgreSQL and Redis; its admission loop ticks only when called."""

from typing import Literal

import httpx
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.app import build, create_app
from services.queue.rooms.model import RequestedBy
from services.queue.settings import Settings
from services.queue.tuning import Tuning
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import InventoryClient
from shared.rpc import ServiceClient
from shared.web.app import internal
from tests.contracts.internal_calls import client_of
from tests.inventory.conftest import EVENT, event_file


class RealQueue:
    def __init__(self, db: AsyncEngine, redis: Redis, inventory: httpx.AsyncClient) -> None:
        settings = Settings()
        inventory_client = ServiceClient(inventory, "http://inventory", settings.service_keys, name="inventory")
        self.queue = build(settings, db, redis, InventoryClient(inventory_client), Tuning(ramp_after_loss=False))
        app = create_app(settings)
        app.state.deps = self.queue
        self.client = client_of(internal(app))

    async def open(self, *, signed_in_only: bool = False) -> None:
        room = {"rate_per_s": 0.05, "burst": 10, "max_active": 1, "entry": {"signed_in_only": signed_in_only}}
        await self.queue.rooms.apply(EventFile.model_validate(event_file() | {"room": room}), RequestedBy("test"))
        await self._transition("open")

    async def close(self) -> None:
        await self._transition("close")

    async def call(self) -> None:
        """Calls one fan, by moving the clock on 20 s: at this rate nobody is called earlier, on a slow machine too."""
        self.queue.line.clock_offset_ms += 20_000
        await self.queue.gatekeeper.tick(EVENT)

    async def _transition(self, action: Literal["open", "close"]) -> None:
        changed = await self.queue.rooms.transition(EVENT, action, RequestedBy("test"))
        await self.queue.gatekeeper.apply_config(changed)
