"""The end of a session: its pass is revoked, unless a live hold keeps the session; and a reset, which revokes older
passes at once, while stock that is held can still be paid.
"""

import asyncio
from dataclasses import replace

import httpx
import pytest

from services.inventory.redis_keys import Keys
from shared.runtime.clock import now_s
from shared.security.tokens import Pass, development_keys, sign_pass
from tests.inventory.actions import end_sessions, record
from tests.inventory.conftest import EVENT, Inventory
from tests.support.running.suite import bearer, problem


async def test_a_pass_is_revoked_unless_its_holder_has_a_live_reservation(inventory: Inventory) -> None:
    held = await inventory.hold("holding", seats=["A-1-1"])
    until_ms = (await record(inventory, held))["reserved_until_ms"] + 5_000
    gone, until = await end_sessions(inventory, "idle", "holding")
    assert (gone["outcome"], until["outcome"], until["until_ms"]) == ("gone", "until", until_ms)
    assert problem(await inventory.reserve("idle", seats=["A-1-2"])) == (401, "bad-credential")
    assert (await inventory.reserve("holding", seats=["A-1-1"])).status_code == 201


async def test_leaving_releases_a_hold_but_not_one_in_payment(inventory: Inventory) -> None:
    await inventory.hold("leaver", seats=["A-1-1"])
    await inventory.step("begin-payment", await inventory.hold("payer", seats=["A-1-2"]), "order-1")
    ended = await end_sessions(inventory, "leaver", "payer", leaving=True)
    assert [session["outcome"] for session in ended] == ["gone", "until"]
    assert await inventory.counts("A") == (14, 1)


async def test_a_hold_and_the_end_of_its_session_never_both_succeed(inventory: Inventory) -> None:
    """Either the pass is revoked and nothing is held, or the hold is made and the session goes on."""
    for i in range(12):
        request = inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1)
        answer, (ended,) = await asyncio.gather(request, end_sessions(inventory, f"f{i}"))
        assert (answer.status_code, ended["outcome"]) in {(201, "until"), (401, "gone")}


def pass_of_epoch(epoch: int, holder: str) -> str:
    now = int(now_s())
    admission = Pass(EVENT, holder, f"jti-{epoch}-{holder}", epoch, 0, 7, 6, now, now + 900)
    return sign_pass(development_keys("pass"), admission)


async def reserve(inventory: Inventory, epoch: int, holder: str = "stale", seat: str = "A-1-2") -> httpx.Response:
    return await inventory.reserve(token=pass_of_epoch(epoch, holder), seats=[seat])


async def raise_min_epoch(inventory: Inventory, epoch: int) -> int:
    return int((await inventory.post_internal("/passes/min-epoch", {"event_id": EVENT, "epoch": epoch}))["epoch"])


async def test_passes_below_the_minimum_epoch_hold_nothing(inventory: Inventory) -> None:
    held = (await reserve(inventory, 1, "quick", "A-1-1")).json()["reservation_id"]
    assert await raise_min_epoch(inventory, 2) == 2
    assert problem(await reserve(inventory, 1)) == (401, "bad-credential")
    old = bearer(pass_of_epoch(1, "late"))
    assert (await inventory.fans.get(f"/events/{EVENT}/sections/A/seats", headers=old)).status_code == 401
    assert (await reserve(inventory, 2, "new")).status_code == 201
    assert await raise_min_epoch(inventory, 1) == 2, "the minimum never falls"
    assert await inventory.outcome("begin-payment", held, "order-1") == "done"


async def test_redis_refuses_a_pass_that_a_process_with_an_old_catalogue_accepts(inventory: Inventory) -> None:
    """Another process raised the minimum, and this one has not read the catalogue since."""
    await inventory.state.redis_stock.set_min_pass_epoch(EVENT, 2)
    assert (await reserve(inventory, 1)).status_code == 401


@pytest.mark.usefixtures("loops")
async def test_the_minimum_epoch_survives_a_flushed_redis(inventory: Inventory) -> None:
    await raise_min_epoch(inventory, 2)
    await inventory.state.redis_stock.redis.flushall()
    await inventory.until_ready()
    assert await inventory.state.redis_stock.redis.hget(Keys.of(EVENT).meta, "min_pass_epoch") == b"2"
    catalogue = inventory.state.catalogue
    catalogue._layouts[EVENT] = replace(catalogue.layout(EVENT), min_pass_epoch=0)
    assert (await reserve(inventory, 1)).status_code == 401
