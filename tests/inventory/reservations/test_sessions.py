"""The end of a session: a freed slot never leaves a working pass, and a live hold keeps its session."""

import asyncio
from typing import Any

from tests.inventory.conftest import EVENT, Inventory


async def end(inventory: Inventory, *holders: str, leaving: bool = False) -> list[Any]:
    sessions = [{"jti": f"jti-{h}", "holder": h, "expires_at_ms": 9**14} for h in holders]
    question = {"event_id": EVENT, "leaving": leaving, "sessions": sessions}
    return list((await inventory.ask("/sessions/end", question))["sessions"])


async def test_a_pass_dies_unless_its_holder_has_a_live_reservation(inventory: Inventory) -> None:
    held = (await inventory.reserve("holding", seats=["A-1-1"])).json()
    gone, until = await end(inventory, "idle", "holding")
    assert gone["outcome"] == "gone"
    assert until["outcome"] == "until"
    record = (await inventory.ask("/reservations/read", {"reservation_ids": [held["reservation_id"]]}))["reservations"][
        0
    ]
    assert until["until_ms"] == record["reserved_until_ms"] + 5_000
    refused = await inventory.reserve("idle", seats=["A-1-2"])
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential")
    assert (await inventory.reserve("holding", seats=["A-1-1"])).status_code == 201


async def test_a_dead_pass_stays_dead_when_redis_forgets(inventory: Inventory) -> None:
    await end(inventory, "idle")
    await inventory.state.redis_stock.redis.flushall()
    await inventory.ready()
    assert (await inventory.reserve("idle", seats=["A-1-2"])).status_code == 401


async def test_leaving_gives_the_hold_back_but_never_what_is_being_paid(inventory: Inventory) -> None:
    await inventory.reserve("leaver", seats=["A-1-1"])
    paying = (await inventory.reserve("payer", seats=["A-1-2"])).json()["reservation_id"]
    await inventory.step("begin-payment", paying, "order-1")
    assert [e["outcome"] for e in await end(inventory, "leaver", "payer", leaving=True)] == ["gone", "until"]
    assert await inventory.left("A") == (14, 1)


async def test_a_hold_and_the_end_of_its_session_never_both_succeed(inventory: Inventory) -> None:
    """Whoever comes first: either the pass is dead and nothing is held, or it is held and the session goes on."""
    for i in range(12):
        asked = inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1)
        answer, (ended,) = await asyncio.gather(asked, end(inventory, f"f{i}"))
        assert (answer.status_code, ended["outcome"]) in {(201, "until"), (401, "gone")}


async def test_limits_hold_for_parallel_requests_of_one_fan(inventory: Inventory) -> None:
    asks = (inventory.reserve("greedy", key=f"key-{i}", seats=[f"A-1-{i + 1}"]) for i in range(5))
    answers = await asyncio.gather(*asks)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert (refused["type"], refused["limit"], refused["allowed"]) == (
        "/problems/limit-exceeded", "active_reservations_per_customer", 1
    )  # fmt: skip


async def test_the_same_key_at_the_same_moment_makes_one_reservation(inventory: Inventory) -> None:
    answers = await asyncio.gather(*(inventory.reserve(key="once", seats=["A-1-1"]) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["reservation_id"] for answer in answers}) == 1
    assert await inventory.left("A") == (14, 1)
