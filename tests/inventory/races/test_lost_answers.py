"""A hold is in the database and the answer to its commit is lost: asked again, it is the same hold, and
nobody else's.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.inventory.settings import Settings
from tests.inventory.conftest import Inventory, settings_of
from tests.support.engines.lossy_proxy import LossyWire, lossy_proxy

WISH: dict[str, Any] = {"seats": ["A-1-1"], "ga_section": "GA1", "ga_quantity": 2}


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[LossyWire]:
    async with lossy_proxy(postgres_url) as wire:
        yield wire


@pytest.fixture
def settings(redis_url: str, wire: LossyWire) -> Settings:
    return settings_of(redis_url, wire.url)


async def test_who_asks_again_has_one_hold(still: Inventory, wire: LossyWire) -> None:
    wire.lose_next = 1
    unknown = await still.reserve("ann", key="key", **WISH)
    assert (unknown.status_code, unknown.headers["retry-after"], wire.lost) == (503, "1", 1)
    again = await still.reserve("ann", key="key", **WISH)
    assert again.status_code in (200, 201), again.text
    assert (await still.reserve("ben", seats=["A-1-1"])).status_code == 409
    assert await still.left("GA1") == (18, 2)
    assert await still.broken() == []
    mine = await still.mine("GET", again.json()["reservation_id"], "ann")
    assert mine.json()["status"] == "pending_payment"
