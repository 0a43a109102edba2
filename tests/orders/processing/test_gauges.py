"""The gauges of waiting work say what the worker of this process has to do."""

import asyncio

from prometheus_client import REGISTRY

from tests.orders.manual_orders import ManualShop


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, labels)
    assert found is not None
    return found


async def test_due_orders_are_counted_until_a_worker_has_done_them(manual: ManualShop) -> None:
    worker = manual.state.worker
    await worker.sweep()
    assert (value("orders_due"), value("orders_oldest_due_seconds")) == (0, 0)
    for _ in range(3):
        await manual.order()
    for held in worker._held.values():
        held.since_s = asyncio.get_running_loop().time() - 20
    await worker.sweep()
    assert value("orders_due") == 3
    assert 20 <= value("orders_oldest_due_seconds") < 60
    charged = value("orders_step_seconds_count", step="charge")
    await manual.work()
    await worker.sweep()
    assert (value("orders_due"), value("orders_oldest_due_seconds")) == (0, 0)
    assert value("orders_step_seconds_count", step="charge") == charged + 3
