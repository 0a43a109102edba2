"""Many events: one round trip of a loop reads them all, and only changed ones cost more; on a real cluster the keys of
an event share one slot, and events on every node are sold.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.redis_keys import Keys
from shared.contracts.event_file import EventFile
from shared.redis.client import node_for_key
from shared.redis.cluster import address_of
from tests.inventory.actions import sell
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.support.engines.engine_groups import Cluster
from tests.support.wait import wait_until

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


ON_NODES = [EVENT, "show-2", "show-3", "show-4"]


async def test_events_on_several_cluster_nodes_are_sold(cluster: Cluster, postgres_url: str) -> None:
    cluster.flush_all()
    async for inventory in start(settings_of(cluster.url, postgres_url)):
        for event_id in ON_NODES:
            assert (await inventory.put({**event_file(), "event_id": event_id})).status_code == 200
        ready = inventory.state.redis_monitor.ready_since_s
        await wait_until(partial(ready.keys().__ge__, set(ON_NODES)))
        nodes = {address_of(await node_for_key(inventory.state.redis_stock.redis, Keys.of(e).meta)) for e in ON_NODES}
        assert len(nodes) > 1
        for event_id in ON_NODES:
            assert (await inventory.reserve("fan", event_id=event_id, seats=["A-1-1"])).status_code == 201
            assert (await inventory.reserve("other", event_id=event_id, seats=["A-1-1"])).status_code == 409
        await sell(inventory, "buyer", seats=["A-2-1"], ga_section="GA1", ga_quantity=2)
        best: dict[str, Any] = {"best_available": {"section_id": "B", "quantity": 2}}
        released = await inventory.hold("leaver", **best)
        assert (await inventory.fan_request("POST", released, "leaver", more="/extend")).status_code == 200
        assert (await inventory.fan_request("DELETE", released, "leaver")).is_success
        assert (await inventory.operate("POST", "/reconcile")).is_success
        assert await inventory.counts("GA1") == (18, 0)
        assert await inventory.violations() == []
