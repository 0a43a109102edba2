"""A fan keeps a part of a hold: exactly the rest is free again, once, whoever else does something at the same time."""

import asyncio
from typing import Any

import httpx
import pytest

from services.inventory.redis_keys import Keys
from services.inventory.reservations import expiry
from shared.runtime.clock import now_ms
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.inventory.limits.test_customer_limits import usage
from tests.inventory.selling import reconciled, sql

ALL: dict[str, Any] = {"seats": ["A-1-1", "A-1-2"], "ga_section": "GA1", "ga_quantity": 3}


async def hold(inventory: Inventory, holder: str = "fan", **body: Any) -> str:
    answer = await inventory.reserve(holder, key="key", **(body or ALL))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reservation_id"])


async def keep(
    inventory: Inventory, reservation_id: str, *seats: str, ga: int = 0, holder: str = "fan"
) -> httpx.Response:
    kept = {"seats": list(seats), "ga": [{"section_id": "GA1", "quantity": ga}] if ga else []}
    headers = {"authorization": f"Bearer {make_pass(holder)}"}
    path = f"/events/{EVENT}/reservations/{reservation_id}/keep"
    return await inventory.fans.post(path, json=kept, headers=headers)


async def left(inventory: Inventory, section_id: str) -> tuple[int, int]:
    """Available and held, as Redis has it at this moment."""
    names = [f"{section_id}:{name}" for name in ("available", "held")]
    available, held = await inventory.state.redis_stock.redis.hmget(Keys.of(EVENT).counts, *names)
    return int(available), int(held)


async def begin(inventory: Inventory, reservation_id: str, *, released_tickets: int | None = None) -> str:
    step = {"reservation_id": reservation_id, "order_reference": "order-1", "released_tickets": released_tickets}
    return str((await inventory.ask("/reservations/begin-payment", {"steps": [step]}))["steps"][0]["outcome"])


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("type", "").removeprefix("/problems/")


async def test_the_rest_is_free_again_and_a_repeat_changes_nothing(still: Inventory) -> None:
    mine = await hold(still)
    answers = await asyncio.gather(*(keep(still, mine, "A-1-1", ga=1) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    for shown in [answer.json() for answer in answers] + [(await still.mine("GET", mine)).json()]:
        assert (shown["seats"], shown["ga_quantity"]) == (["A-1-1"], 1)
        assert shown["total_amount_minor_units"] == 5250 + 3100
    assert (await left(still, "A"), await left(still, "GA1")) == ((14, 1), (19, 1))
    assert await usage(still) == (2, 1)
    told = await sql(still, "SELECT body FROM inventory.outbox WHERE body ->> 'type' = 'reservation.given-back'")
    after = told[0].body["after"]["reservations"][0]
    assert (len(told), after["seats"], after["ga"]) == (1, ["A-1-2"], [{"section_id": "GA1", "quantity": 2}])
    assert (await still.reserve("other", seats=["A-1-2"])).status_code == 201
    assert await still.broken() == []


async def test_the_first_request_again_is_answered_with_what_is_left(still: Inventory) -> None:
    mine = await hold(still)
    assert (await keep(still, mine, "A-1-2")).status_code == 200
    for _ in range(2):
        again = (await still.reserve(key="key", **ALL)).json()
        assert (again["reservation_id"], again["seats"], again["ga_quantity"]) == (mine, ["A-1-2"], 0)
        await still.state.redis_stock.redis.flushall()
        await still.state.redis_monitor.check()
    assert await usage(still) == (1, 1)
    assert await still.broken() == []


async def test_what_is_not_there_or_no_longer_the_fans_is_refused_and_nothing_changes(still: Inventory) -> None:
    mine = await hold(still)
    wrong: list[tuple[list[str], int]] = [(["A-1-1", "A-1-3"], 0), (["A-1-1"], 4), (["B-1-1"], 1)]
    for seats, ga in wrong:
        assert problem(await keep(still, mine, *seats, ga=ga)) == (409, "not-held")
    assert problem(await keep(still, mine)) == (422, "invalid-request")
    assert (await keep(still, mine, "A-1-1", holder="other")).status_code in (403, 404)
    assert await begin(still, mine) == "done"
    assert problem(await keep(still, mine, "A-1-1")) == (409, "payment-in-progress")
    await still.step("end-payment", mine, "order-1")
    assert problem(await keep(still, mine, "A-1-1")) == (409, "payment-in-progress"), "its payment may still come"
    still.travel(1_000_000)
    await still.state.expiry_worker.scan()
    assert problem(await keep(still, mine, "A-1-1")) == (410, "hold-expired")
    assert await left(still, "A") == (15, 0)


async def test_of_two_who_keep_different_places_one_is_told(still: Inventory) -> None:
    for turn in range(5):
        holder = f"fan-{turn}"
        mine = await hold(still, holder, seats=["A-1-1", "A-1-2", "A-1-3"])
        answers = await asyncio.gather(*(keep(still, mine, seat, holder=holder) for seat in ("A-1-1", "A-1-2")))
        assert sorted(problem(answer) for answer in answers) == [(200, ""), (409, "not-held")]
        assert await left(still, "A") == (14, 1)
        assert await still.broken() == []
        await still.mine("DELETE", mine, holder)
        assert (await left(still, "A"), await usage(still, holder)) == ((15, 0), (0, 0))


async def test_a_payment_begins_for_all_that_orders_saw_or_not_at_all(still: Inventory) -> None:
    for turn in range(6):
        holder = f"fan-{turn}"
        mine = await hold(still, holder, seats=[f"A-1-{n}" for n in (1, 2, 3)])
        word, kept = await asyncio.gather(
            begin(still, mine, released_tickets=0), keep(still, mine, "A-1-1", "A-1-2", holder=holder)
        )
        assert (word, *problem(kept)) in [("done", 409, "payment-in-progress"), ("changed", 200, "")]
        await (still.step("release", mine, "order-1") if word == "done" else still.mine("DELETE", mine, holder))
        assert await left(still, "A") == (15, 0)
    mine = await hold(still)
    seen = (await still.ask("/reservations/read", {"reservation_ids": [mine]}))["reservations"][0]
    await keep(still, mine, "A-1-1", ga=1)
    assert seen["released_tickets"] == 0
    assert await begin(still, mine, released_tickets=0) == "changed"
    assert await begin(still, mine, released_tickets=3) == "done"
    await still.step("confirm", mine, "order-1")
    assert await usage(still) == (2, 0)
    assert await still.broken(at_rest=True) == []


async def test_against_the_end_of_the_hold_nothing_is_freed_twice(still: Inventory) -> None:
    for turn in range(6):
        holder = f"fan-{turn}"
        mine = await hold(still, holder)
        past: Any = {"now_ms": now_ms() + 700_000, "actor": "system"}
        ended, kept = await asyncio.gather(
            expiry.cancel_holds(still.state.db, still.state.redis_stock, EVENT, [mine], reason="deadline", **past),
            keep(still, mine, "A-1-1", ga=1, holder=holder),
        )
        assert ended == [mine]
        assert problem(kept) in [(200, ""), (410, "hold-expired")]
        assert (await left(still, "A"), await left(still, "GA1")) == ((15, 0), (20, 0))
        assert await usage(still, holder) == (0, 0)
        assert await still.broken(at_rest=True) == []


async def test_redis_that_did_not_hear_of_it_is_set_right(still: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: Any, **__: Any) -> None:
        return

    mine = await hold(still)
    with monkeypatch.context() as deaf:
        deaf.setattr(still.state.redis_stock, "keep_only", lost)
        assert (await keep(still, mine, "A-1-1", ga=1)).status_code == 200
    assert (await left(still, "A"), await left(still, "GA1")) == ((13, 2), (17, 3)), "Redis still has all of it"
    assert (await reconciled(still, times=3)).differences == 0
    assert (await left(still, "A"), await left(still, "GA1"), await usage(still)) == ((14, 1), (19, 1), (2, 1))
    assert await still.broken() == []


async def test_a_word_to_redis_that_comes_too_late_changes_nothing(still: Inventory) -> None:
    mine = await hold(still)
    await keep(still, mine, "A-1-1", ga=2)
    await keep(still, mine, "A-1-1")
    await still.state.redis_stock.keep_only(EVENT, mine, "A:0;GA1*2")
    assert (await left(still, "A"), await left(still, "GA1"), await usage(still)) == ((14, 1), (20, 0), (1, 1))
    assert await still.broken() == []
