"""A commit whose response is lost: the hold is in the database, and a retry returns the same hold."""

from collections.abc import Iterator

import pytest

from services.inventory.settings import Settings
from tests.inventory.conftest import SEAT_AND_GA, Inventory, settings_of
from tests.support.engines.tcp_proxy import TcpProxy


@pytest.fixture
def wire(postgres_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_url) as wire:
        yield wire


@pytest.fixture
def settings(redis_url: str, wire: TcpProxy) -> Settings:
    return settings_of(redis_url, wire.url)


async def test_a_retry_after_a_lost_commit_response_returns_the_same_hold(inventory: Inventory, wire: TcpProxy) -> None:
    wire.lose_next = 1
    unknown = await inventory.reserve("ann", key="key", **SEAT_AND_GA)
    assert (unknown.status_code, unknown.headers["retry-after"], wire.lost) == (503, "1", 1)
    retried = await inventory.hold("ann", key="key")
    assert (await inventory.reserve("ben", seats=["A-1-1"])).status_code == 409
    assert await inventory.counts("GA1") == (18, 2)
    assert await inventory.violations() == []
    read = await inventory.fan_request("GET", retried, "ann")
    assert read.json()["status"] == "pending_payment"
