"""The gauges of waiting work say what the table of orders says."""

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from services.orders.gauges import refresh_gauges
from tests.orders.manual_orders import ManualShop


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, labels)
    assert found is not None
    return found


async def test_due_orders_are_counted_until_a_worker_has_done_them(manual: ManualShop) -> None:
    db = manual.state.db
    await refresh_gauges(db)
    assert value("orders_due") == 0
    for _ in range(3):
        await manual.order()
    await manual.travel(20)
    await refresh_gauges(db)
    assert value("orders_due") == 3
    assert 20 <= value("orders_oldest_due_seconds") < 60
    charged = value("orders_step_seconds_count", step="charge")
    await manual.work()
    await refresh_gauges(db)
    assert (value("orders_due"), value("orders_oldest_due_seconds")) == (0, 0)
    assert value("orders_step_seconds_count", step="charge") >= charged


@pytest.mark.usefixtures("own_database")
async def test_the_job_engine_is_down_after_a_job_could_not_be_enqueued(manual: ManualShop) -> None:
    await manual.order()
    assert value("orders_job_engine_up") == 1
    async with manual.state.db.begin() as connection:
        await connection.execute(text("ALTER TABLE orders.pgqueuer RENAME TO missing"))
    await manual.order()
    assert value("orders_job_engine_up") == 0
    async with manual.state.db.begin() as connection:
        await connection.execute(text("ALTER TABLE orders.missing RENAME TO pgqueuer"))
    await manual.order()
    assert value("orders_job_engine_up") == 1
