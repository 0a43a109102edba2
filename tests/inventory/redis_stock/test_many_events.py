"""Loops that look at every event ask about many in one round trip, and of each what it needs when something is up."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from services.inventory.redis_keys import Keys
from tests.inventory.conftest import Inventory, event_file

EVENTS = 40
Turn = Callable[[Inventory], Awaitable[None]]
TURNS: dict[str, Turn] = {
    "expiry": lambda inventory: inventory.state.expiry_worker.sweep(),
    "availability": lambda inventory: inventory.state.availability.publish(),
    "rebuild": lambda inventory: inventory.state.redis_monitor.check(),
}


async def put_on_sale(still: Inventory) -> None:
    """Many events, their stock filled and shown; each frame is said again after four seconds."""
    for n in range(EVENTS):
        assert (await still.put({**event_file(), "event_id": f"many-{n}"})).is_success
    await still.state.redis_monitor.check()
    await still.state.availability.publish()


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
async def test_a_quiet_turn_asks_once_for_all_events(
    still: Inventory, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_on_sale(still)
    asked: list[Any] = []
    ask, pipe = Redis.execute_command, Pipeline.execute

    async def counted(self: Redis, *args: Any, **options: Any) -> Any:
        asked.append(args[0])
        return await ask(self, *args, **options)

    async def piped(self: Pipeline, *args: Any, **options: Any) -> Any:
        asked.append("pipeline")
        return await pipe(self, *args, **options)

    monkeypatch.setattr(Redis, "execute_command", counted)
    monkeypatch.setattr(Pipeline, "execute", piped)
    await turn(still)
    assert 0 < len(asked) <= 4, asked


async def test_one_of_many_that_is_lost_or_changed_is_found(still: Inventory) -> None:
    await put_on_sale(still)
    redis, lost, changed = still.state.redis_stock.redis, Keys.of("many-7"), Keys.of("many-23")
    before = await redis.hget(changed.meta, "version")
    await redis.delete(lost.counts)
    assert (await still.reserve(event_id="many-23", seats=["A-1-1"])).status_code == 201
    await still.state.redis_monitor.check()
    assert await redis.exists(lost.counts)
    await still.state.availability.publish()
    assert await redis.hget(changed.meta, "version") > before
    assert not await redis.exists(changed.dirty)
