"""Steps of a payment: every step, by the owning order, by another order, and repeated; when it first began, which is
kept; and the two lengths of a hold that an event may compare.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text

from shared.contracts.event_file import SalesPart
from shared.rules.shares import within
from tests.inventory.actions import record, sql
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.support.wait import row_versions, wait_until, written_since

# Steps of `order-1`, which begins to pay first, and of `order-2`, with their outcomes; then the status of the hold.
SEQUENCES = {
    "a sale": ("confirmed", [
        ("begin-payment", 1, "done"), ("begin-payment", 1, "done"), ("begin-payment", 2, "payment-in-progress"),
        ("end-payment", 2, "not-owner"), ("confirm", 2, "not-owner"), ("release", 2, "not-owner"),
        ("reacquire", 2, "payment-in-progress"), ("confirm", 1, "done"), ("confirm", 1, "done"),
        ("confirm", 2, "not-owner"), ("begin-payment", 1, "done"), ("begin-payment", 2, "ended"),
        ("end-payment", 1, "ended"), ("release", 1, "ended"), ("reacquire", 1, "done"), ("reacquire", 2, "not-owner"),
    ]),
    "a payment that ended": ("paying", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("end-payment", 1, "done"),
        ("confirm", 1, "not-owner"), ("end-payment", 2, "not-owner"), ("release", 2, "not-owner"),
        ("begin-payment", 2, "done"), ("end-payment", 1, "not-owner"), ("confirm", 1, "not-owner"),
        ("release", 1, "not-owner"),
    ]),
    "a release after a payment": ("cancelled", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("release", 1, "done"), ("release", 1, "done"),
    ]),
    "a release": ("cancelled", [
        ("begin-payment", 1, "done"), ("release", 1, "done"), ("release", 1, "done"), ("confirm", 1, "ended"),
        ("end-payment", 1, "ended"), ("begin-payment", 2, "ended"), ("release", 2, "ended"),
    ]),
    "a late payment": ("confirmed", [
        ("begin-payment", 1, "done"), ("release", 1, "done"), ("reacquire", 1, "done"), ("reacquire", 1, "done"),
        ("begin-payment", 2, "ended"),
    ]),
    "a payment that was believed late": ("confirmed", [("begin-payment", 1, "done"), ("reacquire", 1, "done")]),
    "a late payment of a hold that goes on": ("confirmed", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("reacquire", 2, "done"), ("reacquire", 2, "done"),
    ]),
}  # fmt: skip
STOCK = {
    "confirmed": [(14, 0, 1), (18, 0, 2)],
    "paying": [(14, 1, 0), (18, 2, 0)],
    "cancelled": [(15, 0, 0), (20, 0, 0)],
}


@pytest.mark.parametrize("sequence", SEQUENCES)
async def test_only_the_order_that_began_a_payment_can_continue_it(inventory: Inventory, sequence: str) -> None:
    """The card of the first order may be charged at this moment: losing its hold would lose stock that is paid for."""
    reservation_id = await inventory.hold()
    status, steps = SEQUENCES[sequence]
    for n, (verb, order, outcome) in enumerate(steps):
        assert await inventory.outcome(verb, reservation_id, f"order-{order}") == outcome, f"{n}: {verb} {order}"
    sections = (await inventory.post_internal("/stock", {"event_id": EVENT}))["sections"]
    stock = [(s["available"], s["held"], s["sold"]) for s in sections if s["section_id"] != "B"]
    assert stock == STOCK[status]
    assert await inventory.violations(at_rest=status != "paying") == []


async def test_the_payment_time_is_granted_once(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(500_000)
    begun = [await inventory.step("begin-payment", reservation_id, "order-1") for _ in range(2)]
    await inventory.step("end-payment", reservation_id, "order-1")
    inventory.travel(100_000)
    begun.append(await inventory.step("begin-payment", reservation_id, "order-2"))
    assert [(step["outcome"], step["status"]) for step in begun] == [("done", "paying")] * 3
    assert len({step["reserved_until_ms"] for step in begun}) == 1


async def test_a_payment_under_way_gets_more_time_while_it_is_held(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    assert await inventory.outcome("extend-payment", reservation_id, "order-1") == "not-owner", "not paying yet"
    first = await inventory.step("begin-payment", reservation_id, "order-1")
    inventory.travel(500_000)
    assert await inventory.outcome("extend-payment", reservation_id, "order-2") == "not-owner"
    longer = await inventory.step("extend-payment", reservation_id, "order-1")
    assert (longer["outcome"], longer["status"]) == ("done", "paying")
    assert longer["reserved_until_ms"] > first["reserved_until_ms"]
    inventory.travel(longer["reserved_until_ms"] - first["reserved_until_ms"])
    assert await inventory.violations() == [], "Redis has the later end, too"
    inventory.travel(1_000_000)
    assert await inventory.outcome("extend-payment", reservation_id, "order-1") == "ended"


async def test_a_late_payment_never_takes_stock_of_another_holder(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    for verb in ("begin-payment", "release"):
        await inventory.step(verb, reservation_id, "order-1")
    await inventory.hold("other")
    assert await inventory.outcome("reacquire", reservation_id, "order-1") == "taken"
    assert await inventory.counts("GA1") == (18, 2), "all or nothing"
    assert await inventory.violations() == []


async def test_an_unavailable_redis_never_blocks_a_payment(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation_id = await inventory.hold()
    monkeypatch.setattr(inventory.state.redis_stock, "follow", AsyncMock(side_effect=RedisConnectionError))
    for verb in ("begin-payment", "confirm"):
        assert await inventory.outcome(verb, reservation_id, "order-1") == "done"


async def test_steps_find_a_reservation_by_its_event_and_those_of_the_release_before_without(
    inventory: Inventory,
) -> None:
    reservation_id = await inventory.hold()
    assert (await inventory.step("begin-payment", reservation_id, "order-1", event_id="show-2"))["outcome"] == "unknown"
    step = {"reservation_id": reservation_id, "order_reference": "order-1"}
    for verb in ("begin-payment", "confirm", "returns"):
        answer = await inventory.post_internal(f"/reservations/{verb}", {"steps": [step], "reason": "refunded"})
        assert answer["steps"][0]["outcome"] == "done"
    for event_id, status in ((EVENT, "returned"), (None, "returned"), ("show-2", None)):
        question = {"reservation_ids": [reservation_id], "event_ids": [event_id]}
        (found,) = (await inventory.post_internal("/reservations/read", question))["reservations"]
        assert (found and found["status"]) == status


async def test_every_step_answers_unknown_for_an_unknown_reservation(inventory: Inventory) -> None:
    for verb in ("begin-payment", "end-payment", "confirm", "release", "reacquire"):
        assert await inventory.step(verb, "0" * 32, "order-1") == {
            "outcome": "unknown", "order_reference": None, "status": None, "reserved_until_ms": None, "over": None,
            "reservation": None, "binding": None,
        }  # fmt: skip
    assert await inventory.post_internal("/reservations/read", {"reservation_ids": ["x"]}) == {"reservations": [None]}


async def test_a_payment_begins_within_the_hold_and_its_grace_only(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(610_000)
    assert await inventory.outcome("begin-payment", reservation_id, "order-1") == "ended"
    assert await inventory.counts("GA1") == (18, 2), "the sweep releases it, not the payment"


async def test_a_payment_begins_for_the_holder_only_and_answers_the_whole_reservation(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    step: dict[str, Any] = {"event_id": EVENT, "reservation_id": reservation_id, "order_reference": "order-1"}

    async def begin(**more: Any) -> Any:
        return (await inventory.post_internal("/reservations/begin-payment", {"steps": [step | more]}))["steps"][0]

    held = await record(inventory, reservation_id)
    for owner_id in (f"{EVENT}:somebody", "show-2:fan", "fan"):
        stranger = await begin(owner_ids=[owner_id])
        assert (stranger["outcome"], stranger["reservation"]) == ("unknown", None)
        assert await record(inventory, reservation_id) == held
    begun = await begin(owner_ids=[f"{EVENT}:somebody", f"{EVENT}:fan"])
    assert begun["outcome"] == "done"
    assert begun["reservation"] == await record(inventory, reservation_id)
    assert begun["reservation"]["join_seq"] == 7
    assert [(line["section_id"], line["seat_id"], line["quantity"]) for line in begun["reservation"]["lines"]] == [
        ("A", "A-1-1", 1), ("GA1", None, 2)
    ]  # fmt: skip
    other = await begin(order_reference="order-2")
    assert (other["outcome"], other["reservation"]) == ("payment-in-progress", begun["reservation"])
    signed_in = await begin(owner_ids=[":fan"])
    assert (signed_in["outcome"], signed_in["reservation"]) == ("done", begun["reservation"])


HELD = "SELECT to_jsonb(r) - 'version' AS held, version FROM inventory.reservation r"


async def test_a_request_takes_back_the_payment_that_it_began_and_the_hold_is_as_before(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(300_000)
    before = await sql(inventory, HELD)
    for _ in range(2):  # the time to pay is given again: nobody has had it
        begun = await inventory.step("begin-payment", reservation_id, "order-1", "ada")
        assert begun["reserved_until_ms"] > begun["binding"]["unpaid_until_ms"]
        ended = await inventory.step("end-payment", reservation_id, "order-1", binding=begun["binding"])
        assert (ended["outcome"], ended["status"]) == ("done", "pending_payment")
        assert ended["reserved_until_ms"] == begun["binding"]["unpaid_until_ms"]
        [(held, version)] = await sql(inventory, HELD)
        assert held == before[0].held
        assert version > before[0].version, "Redis never takes an older state for a newer one"
        assert await inventory.violations() == []
    inventory.travel(400_000)
    assert await inventory.outcome("begin-payment", reservation_id, "order-2") == "ended", "it has its old deadline"


async def test_a_request_takes_no_payment_back_that_its_order_has_begun_again(inventory: Inventory) -> None:
    """Requests of one order in two processes: the one may refuse what the other writes."""
    reservation_id = await inventory.hold()
    first, again = [await inventory.step("begin-payment", reservation_id, "order-1") for _ in range(2)]
    assert (first["reservation"], again["binding"]) == (again["reservation"], None)
    late = await inventory.step("end-payment", reservation_id, "order-1", binding=first["binding"])
    assert (late["outcome"], late["status"]) == ("not-owner", "paying")
    assert await inventory.outcome("confirm", reservation_id, "order-1") == "done"
    ended = await inventory.outcome("end-payment", reservation_id, "order-1", binding=first["binding"])
    assert ended == "ended"


async def test_a_payment_that_goes_on_after_a_crash_keeps_its_time_when_it_is_taken_back(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    first = await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("end-payment", reservation_id, "order-1")  # it was never written
    second = await inventory.step("begin-payment", reservation_id, "order-2")
    assert second["binding"]["unpaid_until_ms"] is None
    ended = await inventory.step("end-payment", reservation_id, "order-2", binding=second["binding"])
    assert ended["reserved_until_ms"] == second["reserved_until_ms"] == first["reserved_until_ms"]


CONFIRMED_EVENTS = (
    "SELECT body FROM inventory.outbox_batch, jsonb_array_elements(events) AS body "
    "WHERE body ->> 'type' = 'reservation.confirmed'"
)


async def test_steps_of_one_batch_on_the_same_hold_or_customer_take_turns(inventory: Inventory) -> None:
    await inventory.put(event_file(tickets_per_customer=3, open_orders_per_customer=0))
    first, second, third = [await inventory.hold(f"fan-{n}", ga_section="GA1", ga_quantity=2) for n in range(3)]
    steps = [
        (first, "order-1", "ada"), (first, "order-2", "bob"), (second, "order-3", "ada"), (third, "order-4", "eve"),
        (first, "order-1", "ada"), ("0" * 32, "order-5", "ada"),
    ]  # fmt: skip
    sent = [
        {"event_id": EVENT, "reservation_id": r, "order_reference": order, "customer_key": customer}
        for r, order, customer in steps
    ]
    begun = (await inventory.post_internal("/reservations/begin-payment", {"steps": sent}))["steps"]
    assert [step["outcome"] for step in begun] == [
        "done", "payment-in-progress", "limit-exceeded", "done", "done", "unknown"
    ]  # fmt: skip
    sold = (await inventory.post_internal("/reservations/confirm", {"steps": sent}))["steps"]
    assert [step["outcome"] for step in sold] == ["done", "not-owner", "not-owner", "done", "done", "unknown"]
    events = await sql(inventory, CONFIRMED_EVENTS)
    shown = [r for event in events for r in event.body["after"]["reservations"]]
    assert sorted(r["reservation_id"] for r in shown) == sorted([first, third])


@asynccontextmanager
async def changed_meanwhile(inventory: Inventory, reservation_id: str, *changes: str) -> AsyncIterator[None]:
    """A change of the reservation in a session that commits only when another one waits for it."""
    async with inventory.state.db.begin() as connection:
        for change in ("UPDATE inventory.reservation SET version = version + 1", *changes):
            await connection.execute(text(f"{change} WHERE reservation_id = :id"), {"id": reservation_id})
        yield
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )

        async def is_waited_for() -> bool:
            return bool((await sql(inventory, waiting))[0][0])

        await wait_until(is_waited_for)


async def test_a_payment_that_waited_for_a_partial_release_begins_with_what_is_left(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    async with changed_meanwhile(inventory, reservation_id, "DELETE FROM inventory.reservation_ga"):
        begins = asyncio.create_task(inventory.step("begin-payment", reservation_id, "order-1", "ada"))
    begun = await begins
    assert (begun["outcome"], [line["section_id"] for line in begun["reservation"]["lines"]]) == ("done", ["A"])


async def test_a_sale_that_waited_for_another_change_sells_the_places_of_now(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    await inventory.step("begin-payment", reservation_id, "order-1")
    async with changed_meanwhile(inventory, reservation_id, "DELETE FROM inventory.reservation_ga"):
        confirms = asyncio.create_task(inventory.step("confirm", reservation_id, "order-1"))
    assert (await confirms)["outcome"] == "done"
    (event,) = await sql(inventory, CONFIRMED_EVENTS)
    (sold,) = event.body["after"]["reservations"]
    assert (sold["seats"], sold["ga"], sold["version"]) == (["A-1-1"], [], 4)


@pytest.mark.usefixtures("own_database")
async def test_a_purchase_writes_its_reservation_twice_and_each_seat_once(inventory: Inventory) -> None:
    """Counted by PostgreSQL: row versions of all of inventory's tables, for four purchases in two batches."""
    seats = [f"A-1-{n}" for n in range(1, 5)]
    ids = [await inventory.hold(f"fan-{seat}", seats=[seat]) for seat in seats]
    before = await row_versions(inventory.state.db, "inventory")
    steps = [
        {"event_id": EVENT, "reservation_id": r, "order_reference": f"o-{r}", "customer_key": f"c-{r}"} for r in ids
    ]
    for verb in ("begin-payment", "confirm"):
        done = (await inventory.post_internal(f"/reservations/{verb}", {"steps": steps}))["steps"]
        assert {step["outcome"] for step in done} == {"done"}
    written = written_since(before, await row_versions(inventory.state.db, "inventory"))
    assert written == {"reservation": 8, "seat": 4, "outbox_batch": 1}


async def test_the_first_begin_payment_of_a_reservation_counts(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(seats=["A-1-1"])
    begun_at = []
    for order in ("order-1", "order-2"):
        await inventory.step("begin-payment", reservation_id, order)
        await inventory.step("end-payment", reservation_id, order)
        begun_at += await sql(inventory, "SELECT payment_begun_at FROM inventory.reservation")
    assert begun_at[0] == begun_at[1] != (None,)


async def test_each_arm_has_its_own_hold_time_also_after_an_extension(inventory: Inventory) -> None:
    await inventory.put(event_file(hold_ttl_b_s=60, hold_ttl_b_percent=50))
    layout = inventory.state.catalogue.layout(EVENT)
    long, short = fan_of(layout, "a"), fan_of(layout, "b")
    inventory.state.expiry_worker.sweep = None  # type: ignore[method-assign, assignment]
    remaining_s = {}
    for row, holder in enumerate((long, short)):
        reservation_id = await inventory.hold(holder, seats=[f"A-{row + 1}-1"])
        inventory.travel(30_000)
        await inventory.fan_request("POST", reservation_id, holder, more="/extend")
        until_ms = (await record(inventory, reservation_id))["reserved_until_ms"]
        now_ms, _ = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
        remaining_s[holder] = round((until_ms - now_ms) / 1000)
    assert remaining_s == {long: pytest.approx(600, abs=3), short: pytest.approx(60, abs=3)}


def fan_of(layout: Any, arm: str) -> str:
    return next(name for i in range(100) if layout.variant_for(name := f"fan-{i}").name == arm)


def test_the_second_arm_needs_a_hold_time() -> None:
    with pytest.raises(ValueError, match="needs hold_ttl_b_s"):
        SalesPart(hold_ttl_b_percent=50)


def test_arms_are_independent_of_the_rollout_of_the_waiting_room() -> None:
    fans = [f"fan-{i}" for i in range(4000)]
    in_b = {fan for fan in fans if within("hold_ttl", "e", fan, 50)}
    outside_rollout = {fan for fan in fans if not within("rollout", "e", fan, 50)}
    assert 900 < len(in_b & outside_rollout) < 1100
    assert in_b <= {fan for fan in fans if within("hold_ttl", "e", fan, 60)}
    assert not any(within("hold_ttl", "e", fan, 0) for fan in fans)
