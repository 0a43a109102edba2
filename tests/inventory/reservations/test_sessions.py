"""The end of a session: its pass is revoked, unless a live hold keeps the session."""

import asyncio

from tests.inventory.actions import end_sessions, record
from tests.inventory.conftest import Inventory
from tests.support.running.suite import problem


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
