"""The order is committed and PostgreSQL's response to that is lost: a retry gets the same order, charged once.

Its process owns the order without knowing of it, until a sweep finds what it does not know.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from tests.orders.conftest import Environment, OrdersProcesses
from tests.orders.inventory import Inventory
from tests.support.engines.tcp_proxy import TcpProxy


@pytest.fixture
def wire(postgres_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_url) as wire:
        yield wire


@pytest.fixture
async def processes(
    environment: Environment, inventory: Inventory, wire: TcpProxy, redis_url: str
) -> AsyncIterator[OrdersProcesses]:
    await environment.clear()
    async with AsyncExitStack() as stack:
        yield OrdersProcesses(stack, environment, inventory, wire.url, redis_url)


async def test_a_retry_after_a_lost_commit_response_makes_no_second_order(
    processes: OrdersProcesses, wire: TcpProxy
) -> None:
    shop = await processes.open()
    body = shop.body(await shop.inventory.hold())
    wire.autocommit, wire.containing, wire.lose_next = True, b"ada@example.org", 1
    failed = await shop.post(body)
    assert (failed.status_code, failed.headers["retry-after"], wire.lost) == (503, "1", 1)
    again = await shop.post(body)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    await shop.wait_until_settled(again.json()["reference"], "confirmed")
