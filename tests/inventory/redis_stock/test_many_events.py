"""Background loops over many events: one round trip reads them all, and only changed events cost more."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.redis_keys import Keys
from shared.contracts.event_file import EventFile
from tests.inventory.conftest import Inventory, event_file

EVENTS = 12
Run = Callable[[Inventory], Awaitable[object]]
RUNS: dict[str, Run] = {
    "expiry": lambda inventory: inventory.state.expiry_worker.sweep(),
    "availability": lambda inventory: inventory.state.availability.publish(),
    "rebuild": lambda inventory: inventory.state.redis_monitor.check(),
}


async def put_on_sale(inventory: Inventory) -> None:
    """Many events whose stock is rebuilt and published; a frame is published again only after four seconds."""
    for n in range(EVENTS):
        file = EventFile.model_validate({**event_file(), "event_id": f"many-{n}"})
        await apply_event_file(inventory.state.db, file)
    await inventory.state.redis_monitor.check()
    await inventory.state.availability.publish()


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
async def test_a_run_without_changes_reads_all_events_in_few_commands(
    inventory: Inventory, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_on_sale(inventory)
    commands: list[Any] = []
    execute, execute_pipeline = Redis.execute_command, Pipeline.execute

    async def counted_command(self: Redis, *args: Any, **options: Any) -> Any:
        commands.append(args[0])
        return await execute(self, *args, **options)

    async def counted_pipeline(self: Pipeline, *args: Any, **options: Any) -> Any:
        commands.append("pipeline")
        return await execute_pipeline(self, *args, **options)

    monkeypatch.setattr(Redis, "execute_command", counted_command)
    monkeypatch.setattr(Pipeline, "execute", counted_pipeline)
    await run(inventory)
    assert 0 < len(commands) <= 4, commands


async def test_a_lost_and_a_changed_event_are_found_among_many(inventory: Inventory) -> None:
    await put_on_sale(inventory)
    redis, lost, changed = inventory.state.redis_stock.redis, Keys.of("many-7"), Keys.of("many-11")
    before = await redis.hget(changed.meta, "version")
    await redis.delete(lost.counts)
    await inventory.hold(event_id="many-11")
    await inventory.state.redis_monitor.check()
    assert await redis.exists(lost.counts)
    await inventory.state.availability.publish()
    assert await redis.hget(changed.meta, "version") > before
    assert not await redis.exists(changed.dirty)
