"""A reset kills the passes of the old line at once; whoever holds seats may still pay for them."""

from dataclasses import replace

import pytest

from shared.runtime.clock import now_s
from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, sign_pass
from tests.inventory.conftest import EVENT, Inventory


def of_epoch(epoch: int, holder: str) -> str:
    at = int(now_s())
    return sign_pass(
        development_keys("pass"), Pass(EVENT, holder, f"jti-{epoch}-{holder}", epoch, 0, 7, 6, at, at + 900)
    )


async def raise_floor(inventory: Inventory, epoch: int) -> int:
    return int((await inventory.ask("/passes/min-epoch", {"event_id": EVENT, "epoch": epoch}))["epoch"])


async def test_old_passes_take_nothing_and_new_ones_do(inventory: Inventory) -> None:
    held = await inventory.reserve(token=of_epoch(1, "quick"), seats=["A-1-1"])
    assert await raise_floor(inventory, 2) == 2
    refused = await inventory.reserve(token=of_epoch(1, "stale"), seats=["A-1-2"])
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential")
    seats = f"/events/{EVENT}/sections/A/seats"
    old = {"authorization": f"Bearer {of_epoch(1, 'late')}"}
    assert (await inventory.fans.get(seats, headers=old)).status_code == 401
    assert (await inventory.reserve(token=of_epoch(2, "new"), seats=["A-1-2"])).status_code == 201
    assert await raise_floor(inventory, 1) == 2, "it only rises"
    assert (await inventory.step("begin-payment", held.json()["reservation_id"], "order-1"))["outcome"] == "done"


@pytest.mark.parametrize("guarded", [True, False])
async def test_redis_refuses_what_an_uninformed_process_lets_pass(inventory: Inventory, guarded: bool) -> None:
    """Another process raised the floor; this one has not read the catalogue since."""
    if guarded:
        await inventory.state.redis_stock.set_min_pass_epoch(EVENT, 2)
    answer = await inventory.reserve(token=of_epoch(1, "stale"), seats=["A-1-2"])
    assert (answer.status_code == 401) == guarded


async def test_the_floor_survives_the_loss_of_the_engine(inventory: Inventory) -> None:
    await raise_floor(inventory, 2)
    await inventory.state.redis_stock.redis.flushall()
    await inventory.ready()
    assert await inventory.state.redis_stock.redis.hget(f"inventory:{{{EVENT}}}:meta", "min_pass_epoch") == b"2"
    catalogue = inventory.state.catalogue
    catalogue._layouts[EVENT] = replace(catalogue.layout(EVENT), min_pass_epoch=0)
    assert (await inventory.reserve(token=of_epoch(1, "stale"), seats=["A-1-2"])).status_code == 401
