"""Oversold stock, forced into the database: found, and handled by the oversell policy of the event file."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from features.stock.inventory import oversell
from features.stock.inventory.oversell import request_refunds
from services.inventory.store.repair import EXCESS
from shared.concurrency.background import Quiet
from shared.errors.problems import Unavailable
from tests.inventory.actions import audit_log, reconcile, second_reconciler, sell, sql, status
from tests.inventory.conftest import ADMIN_KEY, EVENT, OPERATOR_KEY, Inventory, event_file
from tests.inventory.reservations.test_price_types import priced_file
from tests.support.running.suite import problem

pytestmark = pytest.mark.usefixtures("own_database")

DROP_CONSTRAINT = "ALTER TABLE inventory.section DROP CONSTRAINT ck_section_never_oversold"
SHRINK = (
    "UPDATE inventory.section SET capacity = :capacity, seats_remaining = 0 "
    "WHERE event_id = :event_id AND section_id = 'GA1'"
)
FORCE_SEAT = (
    "INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor) "
    "SELECT :event_id, :reservation_id, section_id, position, 5250 FROM inventory.seat "
    "WHERE event_id = :event_id AND section_id = 'A' AND position = 0"
)


async def oversell_ga(inventory: Inventory, *, fans: int = 5, capacity: int = 9, **policy: Any) -> list[str]:
    """Five fans buy two GA tickets each, then the capacity falls to nine; returns the reservations, oldest first."""
    await inventory.put(event_file(oversell=policy))
    await inventory.state.redis_monitor.check()
    ids = [await sell(inventory, f"fan-{n}", ga_section="GA1", ga_quantity=2) for n in range(fans)]
    await sql(inventory, DROP_CONSTRAINT, SHRINK, capacity=capacity)
    await inventory.state.redis_monitor.check()
    return ids


async def report(inventory: Inventory) -> list[dict[str, Any]]:
    return list((await inventory.admin("GET", f"/events/{EVENT}/reconcile"))["oversell"])


async def statuses(inventory: Inventory) -> list[str]:
    return [case["status"] for case in await report(inventory)]


async def approve(inventory: Inventory, reason: str) -> list[str]:
    """The reservations that lose their tickets."""
    answer = await inventory.admin("POST", f"/events/{EVENT}/oversell/approve", reason=reason)
    return list(answer["cancelled"])


async def test_honour_keeps_every_ticket_and_reports_the_missing_places(inventory: Inventory) -> None:
    ids = await oversell_ga(inventory, policy="honour")
    assert any(violation["invariant"].startswith("2 sold") for violation in await inventory.violations())
    await reconcile(inventory)
    (case,) = await report(inventory)
    assert (case["status"], case["excess"], case["from_buffer"], case["on_paper"]) == ("honoured", 1, 0, 1)
    assert {await status(inventory, reservation_id) for reservation_id in ids} == {"confirmed"}
    assert inventory.orders.refunds == []
    assert (await inventory.reserve("stale", ga_section="GA1", ga_quantity=1)).status_code == 409
    await reconcile(inventory)
    assert await inventory.violations() == []
    assert len(await report(inventory)) == 1, "one decision"
    (found,) = await sql(inventory, EXCESS.text, section_id="GA1", position=-1)
    assert found.excess == 0, "honoured tickets are no excess"
    shrunk = event_file()
    shrunk["sections"][2]["capacity"] = 9
    assert (await inventory.put(shrunk)).status_code == 200, "the event file may state the real capacity"


async def test_honour_uses_the_buffer_first(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer has one ticket, and two are missing."""
    monkeypatch.setattr(oversell, "use_buffer", use_buffer := AsyncMock(return_value=1))
    await oversell_ga(inventory, capacity=8, policy="honour")
    await reconcile(inventory)
    assert use_buffer.await_args_list[0].args[1:] == (EVENT, "GA1", 2)
    assert [(c["status"], c["from_buffer"], c["on_paper"]) for c in await report(inventory)] == [("honoured", 1, 1)]


async def test_cancel_latest_returns_and_refunds_the_latest_sales(inventory: Inventory) -> None:
    ids = await oversell_ga(inventory, policy="cancel_latest", review_percent=20)
    await reconcile(inventory)
    assert inventory.orders.refunds == [], "the next run of the worker refunds"
    assert await request_refunds(inventory.state) == 1
    assert [await status(inventory, reservation_id) for reservation_id in ids] == ["confirmed"] * 4 + ["returned"]
    assert inventory.orders.refunds == ["order-fan-4"]
    (case,) = await report(inventory)
    assert (case["status"], case["returns"][0]["refund"]) == ("cancelled", "asked")
    assert await inventory.counts("GA1") == (1, 0), "one reservation of two tickets returned for one missing ticket"
    assert await inventory.violations() == []
    bodies = await sql(
        inventory,
        "SELECT event AS body FROM inventory.outbox_batch, jsonb_array_elements(events) AS event "
        "WHERE event ->> 'type' = 'reservation.returned'",
    )
    (returned,) = [row.body["after"]["reservations"] for row in bodies]
    assert [(r["reservation_id"], r["reason"]) for r in returned] == [(ids[4], "oversell")]
    again = await inventory.reserve("fan-4", ga_section="GA1", ga_quantity=1)
    assert again.status_code == 201, "the limit of the fan is free again"


async def test_a_latest_buyer_of_several_price_types_loses_all_tickets(inventory: Inventory) -> None:
    """Two lines of one section are one buyer's; a buyer before keeps the tickets."""
    await inventory.put(priced_file(oversell={"policy": "cancel_latest", "review_percent": 100}))
    await inventory.state.redis_monitor.check()
    first = await sell(inventory, "fan-0", ga_section="GA1", ga_quantity=2)
    mixed = [{"section_id": "GA1", "quantity": 2, "type_id": "child"}, {"section_id": "GA1", "quantity": 1}]
    last = await sell(inventory, "fan-1", ga=mixed)
    await sql(inventory, DROP_CONSTRAINT, SHRINK, capacity=4)
    await inventory.state.redis_monitor.check()
    await reconcile(inventory)
    await request_refunds(inventory.state)
    assert [await status(inventory, each) for each in (first, last)] == ["confirmed", "returned"]
    assert inventory.orders.refunds == ["order-fan-1"]


async def test_the_latest_buyers_of_a_type_lose_what_is_beyond_its_number_in_all(inventory: Inventory) -> None:
    await inventory.put(priced_file(oversell={"policy": "cancel_latest", "review_percent": 100}))
    await inventory.state.redis_monitor.check()
    adult = await sell(inventory, "fan-0", seats=["A-1-1"])
    first = await sell(inventory, "fan-1", ga=[{"section_id": "GA1", "quantity": 1, "type_id": "child"}])
    last = await sell(inventory, "fan-2", seats=["A-1-2"], types={"A-1-2": "child"})
    await sql(inventory, DROP_CONSTRAINT, SHRINK.replace("GA1", "~child"), capacity=1)
    await inventory.state.redis_monitor.check()
    await reconcile(inventory)
    await request_refunds(inventory.state)
    assert [await status(inventory, each) for each in (adult, first, last)] == ["confirmed", "confirmed", "returned"]


async def test_a_cancellation_above_the_limit_needs_the_approval_of_an_admin(inventory: Inventory) -> None:
    ids = await oversell_ga(inventory, policy="cancel_latest", review_percent=5)
    await reconcile(inventory, times=4)
    assert await request_refunds(inventory.state) == Quiet()
    (case,) = await report(inventory)
    assert (case["status"], round(case["percent"])) == ("waiting", 11)
    path = f"/admin/inventory/events/{EVENT}/oversell/approve"
    by_operator = await inventory.fans.post(path, json={"reason": "yes"}, headers=OPERATOR_KEY)
    assert by_operator.status_code == 403, "only an admin may approve"
    without_reason = await inventory.fans.post(path, json={}, headers=ADMIN_KEY)
    assert without_reason.status_code == 422, "an approval has a reason"
    assert await approve(inventory, "the hall said so") == [ids[4]]
    assert await approve(inventory, "again") == []
    approvals = [entry for entry in await audit_log(inventory) if entry["action"] == "approve oversell"]
    assert [(entry["reason"], entry["after"]["cancelled"]) for entry in approvals] == [("the hall said so", 1)]
    await request_refunds(inventory.state)
    (case,) = await report(inventory)
    assert (case["status"], case["decided_by"], case["reason"]) == ("cancelled", "tester", "the hall said so")
    assert inventory.orders.refunds == ["order-fan-4"]
    assert await inventory.violations() == []


@pytest.mark.parametrize("policy", ["honour", "cancel_latest"])
async def test_a_seat_sold_twice_stays_with_its_first_buyer(inventory: Inventory, policy: str) -> None:
    """Two fans cannot share a seat: even `honour` needs an approval, which refunds the second buyer."""
    await inventory.put(event_file(oversell={"policy": policy, "review_percent": 10}))
    await inventory.state.redis_monitor.check()
    first = await sell(inventory, "first", seats=["A-1-1"])
    second = await sell(inventory, "second", seats=["B-1-1"])
    await sql(inventory, FORCE_SEAT, "UPDATE inventory.seat SET reservation_id = :reservation_id "
              "WHERE event_id = :event_id AND section_id = 'A' AND position = 0", reservation_id=second)  # fmt: skip
    await reconcile(inventory)
    owner = "SELECT reservation_id FROM inventory.seat WHERE event_id = :event_id AND section_id = 'A' AND position = 0"
    assert (await sql(inventory, owner))[0][0] == first
    if policy == "honour":
        assert await statuses(inventory) == ["waiting"]
        assert await approve(inventory, "no") == [second]
    await request_refunds(inventory.state)
    assert (await status(inventory, first), await status(inventory, second)) == ("confirmed", "returned")
    await reconcile(inventory)
    assert await inventory.counts("A") == (14, 0)
    assert await inventory.counts("B") == (8, 0), "the own seat of the second buyer is free"
    assert inventory.orders.refunds == ["order-second"]
    assert await inventory.violations() == []


async def test_concurrent_reconcilers_decide_once_and_refunds_are_requested_until_orders_answers(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await oversell_ga(inventory, policy="cancel_latest", review_percent=20)
    reconcilers = [inventory.state.reconciler, second_reconciler(inventory), second_reconciler(inventory)]
    await asyncio.gather(*(reconcile(inventory, reconciler) for reconciler in reconcilers))
    assert len(await report(inventory)) == 1
    with monkeypatch.context() as unavailable:
        unavailable.setattr(inventory.orders, "refund", AsyncMock(side_effect=Unavailable))
        assert await request_refunds(inventory.state) == 0
        (case,) = await report(inventory)
        assert (case["status"], case["returns"][0]["refunded_at"]) == ("cancelling", None)
    inventory.orders.states["order-fan-4"] = "pending"
    assert await request_refunds(inventory.state) == 0
    inventory.orders.states.clear()
    refunded = await asyncio.gather(*(request_refunds(inventory.state) for _ in range(2)))
    assert 1 in refunded
    assert await statuses(inventory) == ["cancelled"]
    assert await inventory.counts("GA1") == (1, 0), "returned once, however often the refund was requested"


async def test_a_waiting_case_can_be_honoured_instead_of_approved(inventory: Inventory) -> None:
    ids = await oversell_ga(inventory, policy="cancel_latest", review_percent=5)
    await reconcile(inventory)
    assert await statuses(inventory) == ["waiting"]
    await sql(inventory, "UPDATE inventory.event SET oversell = '{\"policy\": \"honour\", \"review_percent\": 5}', "
              "version = version + 1 WHERE event_id = :event_id")  # fmt: skip
    await inventory.state.redis_monitor.check()
    await reconcile(inventory)
    assert await statuses(inventory) == ["honoured"]
    assert {await status(inventory, reservation_id) for reservation_id in ids} == {"confirmed"}


async def test_neither_a_single_pass_nor_a_vanished_excess_decides_anything(inventory: Inventory) -> None:
    await oversell_ga(inventory, policy="cancel_latest", review_percent=20)
    await reconcile(inventory, times=1)
    assert await report(inventory) == []
    await sql(inventory, SHRINK, capacity=20)
    await reconcile(inventory)
    assert await report(inventory) == []


@pytest.mark.usefixtures("switched_off")
async def test_without_the_feature_every_ticket_is_honoured_and_a_policy_is_refused(inventory: Inventory) -> None:
    ids = await oversell_ga(inventory)
    assert any(violation["invariant"].startswith("2 sold") for violation in await inventory.violations())
    await reconcile(inventory, times=3)
    await inventory.state.redis_monitor.check()
    assert await inventory.violations() == []
    assert {await status(inventory, reservation_id) for reservation_id in ids} == {"confirmed"}
    (drift,) = await sql(inventory, "SELECT item FROM inventory.drift WHERE item LIKE 'database-oversold%'")
    assert drift.item == "database-oversold GA1"
    guests = {"allotment_id": "guests", "name": "Guests", "kind": "house", "seats": ["A-1-1"]}
    for file, field in (
        (event_file(oversell={"policy": "cancel_latest"}), "oversell"),
        ({**event_file(), "allotments": [guests]}, "allotments"),
    ):
        refused = await inventory.put(file)
        assert problem(refused) == (422, "invalid-request")
        assert refused.json()["detail"] == f"{field}: the feature stock is switched off here."
