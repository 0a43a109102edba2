"""Partial release of a hold: exactly the rest is free again, once, also against concurrent requests."""

import asyncio
from typing import Any

import httpx

from services.inventory.reservations import expiry
from shared.runtime.clock import now_ms
from tests.inventory.actions import buy, rebuild, sql, usage
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.inventory.redis_stock.script_calls import live
from tests.support.running.suite import bearer

ALL: dict[str, Any] = {"seats": ["A-1-1", "A-1-2"], "ga_section": "GA1", "ga_quantity": 3}


async def hold(inventory: Inventory, holder: str = "fan", **body: Any) -> str:
    return await inventory.hold(holder, key="key", **(body or ALL))


async def keep(
    inventory: Inventory, reservation_id: str, *seats: str, ga: int = 0, holder: str = "fan"
) -> httpx.Response:
    kept = {"seats": list(seats), "ga": [{"section_id": "GA1", "quantity": ga}] if ga else []}
    path = f"/events/{EVENT}/reservations/{reservation_id}/keep"
    return await inventory.fans.post(path, json=kept, headers=bearer(make_pass(holder)))


async def begin(inventory: Inventory, reservation_id: str) -> Any:
    return await inventory.step("begin-payment", reservation_id, "order-1")


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("type", "").removeprefix("/problems/")


async def redis_counts(inventory: Inventory, holder: str = "fan") -> tuple[tuple[int, int], ...]:
    """Available and held of A and of GA1; tickets and live reservations of the holder."""
    return await inventory.redis_counts("A"), await inventory.redis_counts("GA1"), await usage(inventory, holder)


async def test_the_rest_is_released_once_and_a_repeat_changes_nothing(inventory: Inventory) -> None:
    held = await hold(inventory)
    answers = await asyncio.gather(*(keep(inventory, held, "A-1-1", ga=1) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    for shown in [answer.json() for answer in answers] + [(await inventory.fan_request("GET", held)).json()]:
        assert (shown["seats"], shown["ga_quantity"]) == (["A-1-1"], 1)
        assert shown["total_amount_minor_units"] == 5250 + 3100
    assert await redis_counts(inventory) == ((14, 1), (19, 1), (2, 1))
    events = await sql(
        inventory,
        "SELECT event AS body FROM inventory.outbox_batch, jsonb_array_elements(events) AS event "
        "WHERE event ->> 'type' = 'reservation.given-back'",
    )
    after = events[0].body["after"]["reservations"][0]
    assert (len(events), after["seats"], after["ga"]) == (1, ["A-1-2"], [{"section_id": "GA1", "quantity": 2}])
    assert (await inventory.reserve("other", seats=["A-1-2"])).status_code == 201
    assert await inventory.violations() == []


async def test_a_repeat_of_the_first_request_returns_the_reduced_hold(inventory: Inventory) -> None:
    held = await hold(inventory)
    assert (await keep(inventory, held, "A-1-2")).status_code == 200
    for _ in range(2):
        again = (await inventory.reserve(key="key", **ALL)).json()
        assert (again["reservation_id"], again["seats"], again["ga_quantity"]) == (held, ["A-1-2"], 0)
        await rebuild(inventory)
    assert await usage(inventory) == (1, 1)
    assert await inventory.violations() == []


async def test_a_request_for_stock_that_is_not_held_is_refused_and_changes_nothing(inventory: Inventory) -> None:
    held = await hold(inventory)
    not_held: list[tuple[list[str], int]] = [(["A-1-1", "A-1-3"], 0), (["A-1-1"], 4), (["B-1-1"], 1)]
    for seats, ga in not_held:
        assert problem(await keep(inventory, held, *seats, ga=ga)) == (409, "not-held")
    assert problem(await keep(inventory, held)) == (422, "invalid-request")
    assert (await keep(inventory, held, "A-1-1", holder="other")).status_code in (403, 404)
    assert (await begin(inventory, held))["outcome"] == "done"
    assert problem(await keep(inventory, held, "A-1-1")) == (409, "payment-in-progress")
    await inventory.step("end-payment", held, "order-1")
    assert problem(await keep(inventory, held, "A-1-1")) == (409, "payment-in-progress"), (
        "the payment may still succeed"
    )
    inventory.travel(1_000_000)
    await inventory.state.expiry_worker.scan()
    assert problem(await keep(inventory, held, "A-1-1")) == (410, "hold-expired")
    assert await inventory.redis_counts("A") == (15, 0)
    bought = await hold(inventory, "buyer")
    await buy(inventory, bought, "order-2")
    assert problem(await keep(inventory, bought, "A-1-1", holder="buyer")) == (409, "already-bought")


async def test_one_of_two_concurrent_requests_for_different_seats_is_refused(inventory: Inventory) -> None:
    for n in range(5):
        holder = f"fan-{n}"
        held = await hold(inventory, holder, seats=["A-1-1", "A-1-2", "A-1-3"])
        answers = await asyncio.gather(*(keep(inventory, held, seat, holder=holder) for seat in ("A-1-1", "A-1-2")))
        assert sorted(problem(answer) for answer in answers) == [(200, ""), (409, "not-held")]
        assert await inventory.redis_counts("A") == (14, 1)
        assert await inventory.violations() == []
        await inventory.fan_request("DELETE", held, holder)
        assert await redis_counts(inventory, holder) == ((15, 0), (20, 0), (0, 0))


async def test_a_payment_answers_the_tickets_that_it_begins_for(inventory: Inventory) -> None:
    """Also while the fan releases a part of them."""
    for n in range(6):
        holder = f"fan-{n}"
        held = await hold(inventory, holder, seats=["A-1-1", "A-1-2", "A-1-3"])
        kept = keep(inventory, held, "A-1-1", "A-1-2", holder=holder)
        begun, answer = await asyncio.gather(begin(inventory, held), kept)
        seats = len(begun["reservation"]["lines"])
        assert (begun["outcome"], seats, *problem(answer)) in [
            ("done", 3, 409, "payment-in-progress"), ("done", 2, 200, "")
        ]  # fmt: skip
        await inventory.step("release", held, "order-1")
        assert await inventory.redis_counts("A") == (15, 0)
    held = await hold(inventory)
    await keep(inventory, held, "A-1-1", ga=1)
    begun = await begin(inventory, held)
    assert [(line["seat_id"], line["quantity"]) for line in begun["reservation"]["lines"]] == [
        ("A-1-1", 1), (None, 1)
    ]  # fmt: skip
    await inventory.step("confirm", held, "order-1")
    assert await usage(inventory) == (2, 0)
    assert await inventory.violations(at_rest=True) == []


async def test_a_concurrent_expiry_releases_nothing_twice(inventory: Inventory) -> None:
    for n in range(6):
        holder = f"fan-{n}"
        held = await hold(inventory, holder)
        past: Any = {"now_ms": now_ms() + 700_000, "actor": "system"}
        ended, kept = await asyncio.gather(
            expiry.cancel_holds(
                inventory.state.db, inventory.state.redis_stock, EVENT, [held], reason="deadline", **past
            ),
            keep(inventory, held, "A-1-1", ga=1, holder=holder),
        )
        assert ended == [held]
        assert problem(kept) in [(200, ""), (410, "hold-expired")]
        assert await redis_counts(inventory, holder) == ((15, 0), (20, 0), (0, 0))
        assert await inventory.violations(at_rest=True) == []


async def test_a_late_update_of_redis_changes_nothing(inventory: Inventory) -> None:
    held = await hold(inventory)
    await keep(inventory, held, "A-1-1", ga=2)
    await keep(inventory, held, "A-1-1")
    late = live(held, 2, until_ms=9**13, has="A:0;GA1*2")
    assert await inventory.state.redis_stock.follow(EVENT, [late]) == "done"
    assert await redis_counts(inventory) == ((14, 1), (20, 0), (1, 1))
    assert await inventory.violations() == []
