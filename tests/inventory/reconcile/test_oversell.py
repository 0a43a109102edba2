"""More sold than there is, put into the database by force: found, and dealt with as the event file says."""

import asyncio
from typing import Any

import pytest

from services.inventory.reconcile import oversell
from services.inventory.redis_keys import Keys
from shared.web.problems import Unavailable
from tests.inventory.conftest import ADMIN, EVENT, OPERATOR, Inventory, event_file
from tests.inventory.selling import another, reconciled, sold, sql, status

KEYS = Keys.of(EVENT)
UNGUARD = "ALTER TABLE inventory.section DROP CONSTRAINT ck_section_never_oversold"
SHRINK = (
    "UPDATE inventory.section SET capacity = :capacity, seats_remaining = 0 "
    "WHERE event_id = :event_id AND section_id = 'GA1'"
)
FORCE_SEAT = (
    "INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor) "
    "SELECT :event_id, :reservation_id, section_id, position, 5250 FROM inventory.seat "
    "WHERE event_id = :event_id AND section_id = 'A' AND position = 0"
)


async def floor(inventory: Inventory, *, fans: int = 5, capacity: int = 9, **policy: Any) -> list[str]:
    """Five fans with two tickets each on a floor that turns out to have nine places: the first sold to the last."""
    await inventory.put(event_file(oversell=policy))
    await inventory.state.redis_monitor.check()
    ids = [await sold(inventory, f"fan-{n}", ga_section="GA1", ga_quantity=2) for n in range(fans)]
    await sql(inventory, UNGUARD, SHRINK, capacity=capacity)
    await inventory.state.redis_monitor.check()
    return ids


async def report(inventory: Inventory) -> list[dict[str, Any]]:
    return list((await inventory.admin("GET", f"/events/{EVENT}/reconcile"))["oversell"])


async def test_honour_keeps_every_ticket_and_says_that_places_exist_only_on_paper(still: Inventory) -> None:
    ids = await floor(still, policy="honour")
    assert any(finding["invariant"].startswith("2 sold") for finding in await still.broken()), "the audit sees it first"
    await reconciled(still)
    assert [(c["status"], c["excess"], c["from_buffer"], c["on_paper"]) for c in await report(still)] == [
        ("honoured", 1, 0, 1)
    ]
    assert {await status(still, reservation_id) for reservation_id in ids} == {"confirmed"}
    assert still.orders.refunds == []
    assert (await still.reserve("stale", ga_section="GA1", ga_quantity=1)).status_code == 409
    await reconciled(still)
    assert await still.broken() == []
    assert len(await report(still)) == 1, "it is decided once"
    (found,) = await sql(still, oversell.EXCESS.text, section_id="GA1", position=-1)
    assert found.excess == 0, "what was honoured is no excess"
    shrunk = event_file()
    shrunk["sections"][2]["capacity"] = 9
    assert (await still.put(shrunk)).status_code == 200, "the event file may say what there really is"


async def test_honour_takes_from_the_buffer_first(still: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One place of the buffer is left, two are missing."""

    async def buffer(connection: Any, event_id: str, section_id: str, n: int) -> int:
        assert (event_id, section_id, n) == (EVENT, "GA1", 2)
        return 1

    monkeypatch.setattr(oversell, "use_buffer", buffer)
    await floor(still, capacity=8, policy="honour")
    await reconciled(still)
    assert [(c["status"], c["from_buffer"], c["on_paper"]) for c in await report(still)] == [("honoured", 1, 1)]


async def test_cancel_latest_takes_back_from_the_last_and_refunds_them_in_full(still: Inventory) -> None:
    ids = await floor(still, policy="cancel_latest", review_percent=20)
    await reconciled(still)
    assert still.orders.refunds == [], "it is decided, and done by the next turn"
    assert await still.state.oversell_refunds.run_once() == 1
    assert [await status(still, reservation_id) for reservation_id in ids] == ["confirmed"] * 4 + ["returned"]
    assert still.orders.refunds == ["order-fan-4"]
    (case,) = await report(still)
    assert (case["status"], case["returns"][0]["refund"]) == ("cancelled", "asked")
    assert await still.left("GA1") == (1, 0), "two came back for one that was missing"
    assert await still.broken() == []
    bodies = await sql(still, "SELECT body FROM inventory.outbox WHERE body ->> 'type' = 'reservation.returned'")
    (told,) = [row.body["after"]["reservations"] for row in bodies]
    assert [(r["reservation_id"], r["reason"]) for r in told] == [(ids[4], "oversell")]
    assert (await still.reserve("fan-4", ga_section="GA1", ga_quantity=1)).status_code == 201, (
        "their limit is free again"
    )


async def test_above_the_limit_nothing_is_cancelled_without_an_admins_approval(still: Inventory) -> None:
    ids = await floor(still, policy="cancel_latest", review_percent=5)
    await reconciled(still, times=4)
    assert await still.state.oversell_refunds.run_once() == 0
    (case,) = await report(still)
    assert (case["status"], round(case["percent"])) == ("waiting", 11)
    path = f"/admin/inventory/events/{EVENT}/oversell/approve"
    hand = {"authorization": f"Bearer {OPERATOR.split(':')[2]}"}
    assert (await still.fans.post(path, json={"reason": "yes"}, headers=hand)).status_code == 403, "not an admin"
    silent = await still.fans.post(path, json={}, headers={"authorization": f"Bearer {ADMIN.split(':')[2]}"})
    assert silent.status_code == 422, "an approval has a reason"
    assert (await still.admin("POST", f"/events/{EVENT}/oversell/approve", reason="the hall said so")) == {
        "cancelled": [ids[4]]
    }
    assert await still.admin("POST", f"/events/{EVENT}/oversell/approve", reason="again") == {"cancelled": []}
    await still.state.oversell_refunds.run_once()
    (case,) = await report(still)
    assert (case["status"], case["decided_by"], case["reason"]) == ("cancelled", "tester", "the hall said so")
    assert still.orders.refunds == ["order-fan-4"]
    assert await still.broken() == []


@pytest.mark.parametrize("policy", ["honour", "cancel_latest"])
async def test_a_seat_sold_twice_stays_with_its_first_buyer(still: Inventory, policy: str) -> None:
    """Paper cannot seat two: even `honour` asks a person, whose approval gives the second buyer the money back."""
    await still.put(event_file(oversell={"policy": policy, "review_percent": 10}))
    await still.state.redis_monitor.check()
    first = await sold(still, "first", seats=["A-1-1"])
    second = await sold(still, "second", seats=["B-1-1"])
    await sql(still, FORCE_SEAT, "UPDATE inventory.seat SET reservation_id = :reservation_id "
              "WHERE event_id = :event_id AND section_id = 'A' AND position = 0", reservation_id=second)  # fmt: skip
    await reconciled(still)
    owner = "SELECT reservation_id FROM inventory.seat WHERE event_id = :event_id AND section_id = 'A' AND position = 0"
    assert (await sql(still, owner))[0][0] == first
    if policy == "honour":
        assert [case["status"] for case in await report(still)] == ["waiting"]
        assert (await still.admin("POST", f"/events/{EVENT}/oversell/approve", reason="no"))["cancelled"] == [second]
    await still.state.oversell_refunds.run_once()
    assert (await status(still, first), await status(still, second)) == ("confirmed", "returned")
    await reconciled(still)
    assert (await still.left("A"), await still.left("B")) == ((14, 0), (8, 0)), "the second's own seat is free"
    assert still.orders.refunds == ["order-second"]
    assert await still.broken() == []


async def test_several_reconcilers_decide_once_and_orders_is_asked_until_it_answers(
    still: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await floor(still, policy="cancel_latest", review_percent=20)
    three = [still.state.reconciler, another(still), another(still)]
    await asyncio.gather(*(reconciled(still, reconciler) for reconciler in three))
    assert len(await report(still)) == 1
    answer = still.orders.refund

    async def silent(*_: Any, **__: Any) -> Any:
        raise Unavailable

    monkeypatch.setattr(still.orders, "refund", silent)
    assert await still.state.oversell_refunds.run_once() == 0
    (case,) = await report(still)
    assert (case["status"], case["returns"][0]["refunded_at"]) == ("cancelling", None)
    monkeypatch.setattr(still.orders, "refund", answer)
    still.orders.states["order-fan-4"] = "pending"
    assert await still.state.oversell_refunds.run_once() == 0
    still.orders.states.clear()
    assert sorted(
        await asyncio.gather(still.state.oversell_refunds.run_once(), still.state.oversell_refunds.run_once())
    ) in ([0, 1], [1, 1])
    assert [case["status"] for case in await report(still)] == ["cancelled"]
    assert await still.left("GA1") == (1, 0), "taken back once, however often it was asked for"


async def test_who_would_rather_not_approve_can_still_honour(still: Inventory) -> None:
    ids = await floor(still, policy="cancel_latest", review_percent=5)
    await reconciled(still)
    assert [case["status"] for case in await report(still)] == ["waiting"]
    await sql(still, "UPDATE inventory.event SET oversell = '{\"policy\": \"honour\", \"review_percent\": 5}', "
              "version = version + 1 WHERE event_id = :event_id")  # fmt: skip
    await still.state.redis_monitor.check()
    await reconciled(still)
    assert [case["status"] for case in await report(still)] == ["honoured"]
    assert {await status(still, reservation_id) for reservation_id in ids} == {"confirmed"}


async def test_nothing_is_decided_on_a_single_look_or_once_it_came_right(still: Inventory) -> None:
    await floor(still, policy="cancel_latest", review_percent=20)
    await reconciled(still, times=1)
    assert await report(still) == []
    await sql(still, SHRINK, capacity=20)
    await reconciled(still)
    assert await report(still) == []
