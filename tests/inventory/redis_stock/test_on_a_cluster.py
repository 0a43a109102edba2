"""The Redis stock on a real cluster: the keys of an event share one slot, and events on every node are sold."""

from functools import partial
from typing import Any

from services.inventory.redis_keys import Keys
from shared.redis.client import node_for_key
from shared.redis.slot_map import address_of
from tests.inventory.actions import sell
from tests.inventory.conftest import EVENT, event_file, settings_of, start
from tests.support.engines.engine_groups import Cluster
from tests.support.wait import wait_until

EVENTS = [EVENT, "show-2", "show-3", "show-4"]


async def test_events_on_several_cluster_nodes_are_sold(cluster: Cluster, postgres_url: str) -> None:
    cluster.flush_all()
    async for inventory in start(settings_of(cluster.url, postgres_url)):
        for event_id in EVENTS:
            assert (await inventory.put({**event_file(), "event_id": event_id})).status_code == 200
        ready = inventory.state.redis_monitor.ready_since_s
        await wait_until(partial(ready.keys().__ge__, set(EVENTS)))
        nodes = {address_of(await node_for_key(inventory.state.redis_stock.redis, Keys.of(e).meta)) for e in EVENTS}
        assert len(nodes) > 1
        for event_id in EVENTS:
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
