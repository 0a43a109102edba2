"""The end of a session: its pass is revoked, unless a live hold keeps the session."""

import asyncio

from tests.inventory.actions import end_sessions, record
from tests.inventory.conftest import Inventory


async def test_a_pass_is_revoked_unless_its_holder_has_a_live_reservation(inventory: Inventory) -> None:
    held = await inventory.hold("holding", seats=["A-1-1"])
    gone, until = await end_sessions(inventory, "idle", "holding")
    assert gone["outcome"] == "gone"
    assert until["outcome"] == "until"
    assert until["until_ms"] == (await record(inventory, held))["reserved_until_ms"] + 5_000
    refused = await inventory.reserve("idle", seats=["A-1-2"])
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential")
    assert (await inventory.reserve("holding", seats=["A-1-1"])).status_code == 201


async def test_a_revoked_pass_stays_revoked_after_redis_is_flushed(inventory: Inventory) -> None:
    await end_sessions(inventory, "idle")
    await inventory.state.redis_stock.redis.flushall()
    await inventory.until_ready()
    assert (await inventory.reserve("idle", seats=["A-1-2"])).status_code == 401


async def test_leaving_releases_a_hold_but_not_one_in_payment(inventory: Inventory) -> None:
    await inventory.reserve("leaver", seats=["A-1-1"])
    paying = await inventory.hold("payer", seats=["A-1-2"])
    await inventory.step("begin-payment", paying, "order-1")
    assert [session["outcome"] for session in await end_sessions(inventory, "leaver", "payer", leaving=True)] == [
        "gone",
        "until",
    ]
    assert await inventory.counts("A") == (14, 1)


async def test_a_hold_and_the_end_of_its_session_never_both_succeed(inventory: Inventory) -> None:
    """Either the pass is revoked and nothing is held, or the hold is made and the session goes on."""
    for i in range(12):
        request = inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1)
        answer, (ended,) = await asyncio.gather(request, end_sessions(inventory, f"f{i}"))
        assert (answer.status_code, ended["outcome"]) in {(201, "until"), (401, "gone")}


async def test_concurrent_requests_of_one_fan_keep_the_limit(inventory: Inventory) -> None:
    requests = (inventory.reserve("greedy", key=f"key-{i}", seats=[f"A-1-{i + 1}"]) for i in range(5))
    answers = await asyncio.gather(*requests)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert (refused["type"], refused["limit"], refused["allowed"]) == (
        "/problems/limit-exceeded", "active_reservations_per_customer", 1
    )  # fmt: skip


async def test_concurrent_requests_with_one_key_make_one_reservation(inventory: Inventory) -> None:
    answers = await asyncio.gather(*(inventory.reserve(key="once", seats=["A-1-1"]) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["reservation_id"] for answer in answers}) == 1
    assert await inventory.counts("A") == (14, 1)
