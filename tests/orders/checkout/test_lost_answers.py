"""The order is committed and the answer to its commit is lost: the retry gets the same order, charged once."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.orders.conftest import Environment, OrdersProcesses
from tests.support.engines.lossy_proxy import LossyWire, lossy_proxy


@pytest_asyncio.fixture(loop_scope="session")
async def wire(postgres_url: str) -> AsyncIterator[LossyWire]:
    async with lossy_proxy(postgres_url) as wire:
        yield wire


@pytest_asyncio.fixture(loop_scope="session")
async def processes(environment: Environment, wire: LossyWire, redis_url: str) -> AsyncIterator[OrdersProcesses]:
    await environment.clear()
    async with AsyncExitStack() as stack:
        yield OrdersProcesses(stack, environment, wire.url, redis_url)


async def test_who_asks_again_has_one_order(processes: OrdersProcesses, wire: LossyWire) -> None:
    shop = await processes.open()
    body = shop.body(shop.holds.hold())
    wire.about, wire.lose_next = b"ada@example.org", 1
    unknown = await shop.post(body)
    assert (unknown.status_code, unknown.headers["retry-after"], wire.lost) == (503, "1", 1)
    again = await shop.post(body)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    await shop.settled(again.json()["reference"], "confirmed")
