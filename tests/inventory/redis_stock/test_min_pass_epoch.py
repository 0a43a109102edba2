"""The minimum epoch of passes: a reset revokes older passes now once, and stock that is held can still be paid."""

from dataclasses import replace

import pytest

from services.inventory.redis_keys import Keys
from shared.runtime.clock import now_s
from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, sign_pass
from tests.inventory.conftest import EVENT, Inventory
from tests.support.running.suite import bearer


def pass_of_epoch(epoch: int, holder: str) -> str:
    now = int(now_s())
    return sign_pass(
        development_keys("pass"), Pass(EVENT, holder, f"jti-{epoch}-{holder}", epoch, 0, 7, 6, now, now + 900)
    )


async def raise_min_epoch(inventory: Inventory, epoch: int) -> int:
    return int((await inventory.post_internal("/passes/min-epoch", {"event_id": EVENT, "epoch": epoch}))["epoch"])


async def test_passes_below_the_minimum_epoch_hold_nothing(inventory: Inventory) -> None:
    held = await inventory.reserve(token=pass_of_epoch(1, "quick"), seats=["A-1-1"])
    assert await raise_min_epoch(inventory, 2) == 2
    refused = await inventory.reserve(token=pass_of_epoch(1, "stale"), seats=["A-1-2"])
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential")
    seats = f"/events/{EVENT}/sections/A/seats"
    old = bearer(pass_of_epoch(1, "late"))
    assert (await inventory.fans.get(seats, headers=old)).status_code == 401
    assert (await inventory.reserve(token=pass_of_epoch(2, "new"), seats=["A-1-2"])).status_code == 201
    assert await raise_min_epoch(inventory, 1) == 2, "the minimum never falls"
    assert (await inventory.step("begin-payment", held.json()["reservation_id"], "order-1"))["outcome"] == "done"


@pytest.mark.parametrize("guarded", [True, False])
async def test_redis_refuses_a_pass_that_a_process_with_an_old_catalogue_accepts(
    inventory: Inventory, guarded: bool
) -> None:
    """Another process raised the minimum, and this one has not read the catalogue since."""
    if guarded:
        await inventory.state.redis_stock.set_min_pass_epoch(EVENT, 2)
    answer = await inventory.reserve(token=pass_of_epoch(1, "stale"), seats=["A-1-2"])
    assert (answer.status_code == 401) == guarded


async def test_the_minimum_epoch_survives_a_flushed_redis(inventory: Inventory) -> None:
    await raise_min_epoch(inventory, 2)
    await inventory.state.redis_stock.redis.flushall()
    await inventory.until_ready()
    assert await inventory.state.redis_stock.redis.hget(Keys.of(EVENT).meta, "min_pass_epoch") == b"2"
    catalogue = inventory.state.catalogue
    catalogue._layouts[EVENT] = replace(catalogue.layout(EVENT), min_pass_epoch=0)
    assert (await inventory.reserve(token=pass_of_epoch(1, "stale"), seats=["A-1-2"])).status_code == 401
