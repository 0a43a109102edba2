"""Our line without a server around it: the real scripts, rooms and joins in this process, ticked by the benchmark.

It measures what PostgreSQL and Redis alone take for one operation. Time is simulated by the clock offset that the
scripts take; nothing here waits.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from bench.harness.measurement import Trial
from bench.line.joins import EVENT
from services.queue.admission.gatekeeper import run_tick
from services.queue.app import build
from services.queue.line.redis_line import RedisLine, Stock
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.settings import Settings
from services.queue.state import State
from services.queue.tuning import Tuning
from shared.contracts.inventory import InventoryClient
from shared.postgres import engine as postgres_engine
from shared.postgres import migrations
from shared.postgres.settings import PostgresSettings
from shared.redis import client as redis_client
from shared.rpc import ServiceClient
from shared.security.tokens import development_keys

PER_BATCH = 1000


@dataclass
class Queue:
    """One queue process without its loops."""

    state: State
    redis: redis_client.Redis
    room: WaitingRoom

    @property
    def line(self) -> RedisLine:
        return self.state.line

    def advance_clock(self, milliseconds: int) -> None:
        """Moves Redis' clock on, as the scripts see it."""
        self.line.clock_offset_ms += milliseconds

    async def join_all(self, count: int) -> None:
        """Joins `count` fans in Redis alone; joining is their first heartbeat."""
        for n in range(0, count, PER_BATCH):
            numbers = await self.line.allocate(self.room, 0, f"joins-{n}", count=min(PER_BATCH, count - n))
            assert numbers.outcome == "ok", numbers
            join_seqs = range(numbers.first, numbers.first + numbers.granted)
            await self.line.commit_join(self.room, 0, numbers.member, join_seqs)

    async def report_all_alive(self, count: int) -> None:
        """Reports a heartbeat of every place in the current window."""
        for n in range(1, count + 1, 4096):
            await self.line.touch(self.room.event_id, self.room.epoch, 0, range(n, min(n + 4096, count + 1)))

    async def tick(self) -> int:
        """One tick with its acknowledgement; the number of calls."""
        reply = await run_tick(self.line, self.room, heartbeat_gap=False, stock=Stock())
        if reply.changes:
            await self.line.acknowledge(self.room, generation=reply.state["generation"], up_to=reply.changes[-1].number)
        return len(reply.changes)


@asynccontextmanager
async def queue(trial: Trial, event_id: str = EVENT.event_id, **room: float) -> AsyncIterator[Queue]:
    """An open room, rebuilt to Redis, with an empty rate bucket and an empty line."""
    await migrations.upgrade(trial.postgres_url, "queue")
    db = postgres_engine.connect(PostgresSettings(postgres_url=trial.postgres_url, postgres_pool_max=32), name="bench")
    client = redis_client.connect(trial.redis_url, timeout_s=60)
    try:
        async with httpx.AsyncClient(trust_env=False) as pool:
            service = ServiceClient(pool, "http://inventory", development_keys("service"), name="inventory")
            state = build(Settings(), db, client, InventoryClient(service), Tuning(ramp_after_loss=False))
            event = EVENT.model_copy(
                update={"event_id": event_id, "room": EVENT.room.model_copy(update={"max_active": 1_000_000, **room})}
            )
            await state.rooms.apply(event, RequestedBy("bench"))
            await state.rooms.change(event_id, {"stock_coupling": False}, RequestedBy("bench"))
            await state.rooms.transition(event_id, "open", RequestedBy("bench"))
            await state.recovery.rebuild(event_id)
            yield Queue(state, client, await state.rooms.get(event_id))
    finally:
        await client.aclose()
        await db.dispose()
