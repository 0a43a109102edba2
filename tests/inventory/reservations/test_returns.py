"""Returns of a sale, whole or by ticket: in the database first, then in Redis, once, and only by its order.

Partial release of a hold: exactly the rest is free again, once, also against concurrent requests.
"""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations import expiry
from shared.runtime.clock import now_ms
from tests.inventory.actions import buy, rebuild, reconcile, sell, sql, status, usage
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.inventory.redis_stock.test_scripts import live
from tests.support.running.suite import bearer

KEYS = Keys.of(EVENT)
UNKNOWN_ID = "0" * 32
ALL: dict[str, Any] = {"seats": ["A-1-1", "A-1-2"], "ga_section": "GA1", "ga_quantity": 3}


async def return_stock(
    inventory: Inventory, reservation_id: str, reference: str = "order-one", **more: Any
) -> str:  # fmt: skip
    step = {"event_id": EVENT, "reservation_id": reservation_id, "order_reference": reference}
    answer = await inventory.post_internal("/reservations/returns", {"steps": [step], "reason": "refunded", **more})
    return str(answer["steps"][0]["outcome"])


async def return_tickets(
    inventory: Inventory, reservation_id: str, *seats: str, ga: int = 0, return_id: str = "R.1",
    reference: str = "order-one", **more: Any,
) -> str:  # fmt: skip
    request = {
        "return_id": return_id, "event_id": EVENT, "reservation_id": reservation_id, "order_reference": reference,
        "seats": list(seats),
        "ga": [{"section_id": "GA1", "quantity": ga}] if ga else [], "reason": "refunded", **more,
    }  # fmt: skip
    return str((await inventory.post_internal("/reservations/ticket-returns", request))["outcome"])


async def counts(inventory: Inventory) -> tuple[tuple[int, int], tuple[int, int]]:
    """Available and held of A and of GA1, while nothing violates the invariants."""
    assert await inventory.violations(at_rest=True) == []
    return await inventory.counts("A"), await inventory.counts("GA1")


@pytest.mark.parametrize("whole", [True, False])
async def test_repeated_returns_release_the_sale_or_the_named_tickets_once(inventory: Inventory, whole: bool) -> None:
    bought = await sell(inventory, "one", **ALL)
    returns = (
        return_stock(inventory, bought) if whole else return_tickets(inventory, bought, "A-1-1", ga=2) for _ in "12345"
    )
    assert set(await asyncio.gather(*returns)) == {"done"}
    assert await status(inventory, bought) == ("returned" if whole else "confirmed")
    returned = ((15, 0), (20, 0)) if whole else ((14, 0), (19, 0))
    assert await counts(inventory) == returned
    events = await sql(
        inventory,
        "SELECT event AS body FROM inventory.outbox_batch, jsonb_array_elements(events) AS event "
        "WHERE event ->> 'type' = 'reservation.returned'",
    )
    assert len(events) == 1
    log = "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY 1"
    seats, ga = ([0, 1], 3) if whole else ([0], 2)
    assert [tuple(row) for row in await sql(inventory, log)] == [
        ("A", "returned", seats, 0, 0), ("GA1", "returned", [], ga, 0)
    ]  # fmt: skip
    assert await usage(inventory, "one") == ((0, 0) if whole else (2, 0))
    await rebuild(inventory)
    assert await counts(inventory) == returned
    assert (await inventory.reserve("other", seats=["A-1-1"])).status_code == 201
    assert (await inventory.reserve("third", seats=["A-1-2"])).status_code == (201 if whole else 409)


@pytest.mark.parametrize("whole", [True, False])
async def test_stock_returned_as_blocked_does_not_go_on_sale(inventory: Inventory, whole: bool) -> None:
    bought = await sell(inventory, "one", **ALL)
    if whole:
        assert await return_stock(inventory, bought, keep_blocked=True) == "done"
    else:
        assert await return_tickets(inventory, bought, "A-1-1", ga=1, keep_blocked=True) == "done"
    assert await counts(inventory) == ((13, 0), (17, 0))
    assert (await inventory.reserve("other", seats=["A-1-1"])).status_code == 409
    await rebuild(inventory)
    assert await counts(inventory) == ((13, 0), (17, 0))


@pytest.mark.parametrize("whole", [True, False])
async def test_redis_applies_a_repeated_return_once(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """A return repeated after a lost answer does not change what was sold to somebody else meanwhile."""
    bought = await sell(inventory, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    await sell(inventory, "two", ga_section="GA1", ga_quantity=2)
    redis_stock = inventory.state.redis_stock
    epoch, calls = int(await redis_stock.redis.hget(KEYS.meta, "epoch")), list[Any]()

    async def recorded(event_id: str, changes: Any, **named: Any) -> str:
        calls.append((changes, named))
        return str(await RedisStock.follow(redis_stock, event_id, changes, **named))

    monkeypatch.setattr(redis_stock, "follow", recorded)
    assert await (return_stock(inventory, bought) if whole else return_tickets(inventory, bought, ga=2)) == "done"
    [(changes, named)] = calls
    assert (named, changes[0]["returned"]["places"]) == ({"epoch": epoch}, "A:0;GA1*2" if whole else "GA1*2")
    assert await redis_stock.follow(EVENT, changes, **named) == "done"
    assert await redis_stock.redis.hget(KEYS.counts, "GA1:sold") == b"2"
    assert await inventory.violations() == []


async def test_of_two_returns_in_the_wrong_order_redis_looks_for_the_first(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bought = await sell(inventory, "one", seats=["A-1-1", "A-1-2"])
    redis_stock = inventory.state.redis_stock
    with monkeypatch.context() as slow:
        slow.setattr(redis_stock, "follow", first := AsyncMock(return_value="done"))
        assert await return_tickets(inventory, bought, "A-1-1", return_id="R.1") == "done"
    assert await return_tickets(inventory, bought, "A-1-2", return_id="R.2") == "done"
    assert redis_stock.behind == set()
    overtaken_call = first.await_args
    assert overtaken_call is not None
    assert await redis_stock.follow(*overtaken_call.args, **overtaken_call.kwargs) == "late"
    with monkeypatch.context() as overtaken:
        overtaken.setattr(redis_stock, "follow", AsyncMock(return_value="late"))
        await return_stock(inventory, await sell(inventory, "two", seats=["A-1-3"]), "order-two")
    assert redis_stock.behind == {EVENT}
    assert (await reconcile(inventory, times=3)).differences == 0
    assert await counts(inventory) == ((15, 0), (20, 0))


async def test_only_the_order_of_a_sale_can_return_it(inventory: Inventory) -> None:
    bought = await sell(inventory, "one", seats=["A-1-1"])
    held = await inventory.hold("two", seats=["A-1-2"])
    for give in (return_stock, return_tickets):
        for reservation_id, outcome in ((bought, "not-owner"), (held, "not-owner"), (UNKNOWN_ID, "unknown")):
            assert await give(inventory, reservation_id, reference="order-two") == outcome
    await inventory.step("begin-payment", held, "order-two")
    assert await return_stock(inventory, held, "order-two") == "not-owner", "it is not sold yet"
    assert await inventory.counts("A") == (13, 1)
    assert [await return_stock(inventory, bought) for _ in range(2)] == ["done", "done"]
    assert await return_stock(inventory, bought, "order-two") == "not-owner"


async def test_a_return_from_before_a_rebuild_is_not_applied_to_the_rebuilt_stock(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebuild has read the return from the database: applied again, it would count the tickets twice."""
    bought = await sell(inventory, "one", ga_section="GA1", ga_quantity=2)
    await sell(inventory, "two", ga_section="GA1", ga_quantity=2)
    redis_stock = inventory.state.redis_stock

    async def follow_after_rebuild(*args: Any, **named: Any) -> str:
        await rebuild(inventory)
        return str(await RedisStock.follow(redis_stock, *args, **named))

    monkeypatch.setattr(redis_stock, "follow", follow_after_rebuild)
    assert await return_stock(inventory, bought) == "done"
    assert await counts(inventory) == ((15, 0), (18, 0))


async def test_the_return_of_the_last_ticket_ends_the_reservation(inventory: Inventory) -> None:
    bought = await sell(inventory, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    assert await return_tickets(inventory, bought, ga=2) == "done"
    for return_id, outcome in (("R.2", "done"), ("R.2", "done"), ("R.3", "ended")):
        assert await return_tickets(inventory, bought, "A-1-1", return_id=return_id) == outcome
        assert await status(inventory, bought) == "returned"
    assert await counts(inventory) == ((15, 0), (20, 0))


async def test_a_return_is_refused_whole_if_one_ticket_cannot_be_returned(inventory: Inventory) -> None:
    bought = await sell(inventory, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    await sell(inventory, "two", seats=["A-1-3"])
    assert await return_tickets(inventory, bought, "A-1-1", "A-1-3") == "ended", "one seat belongs to another sale"
    assert await return_tickets(inventory, bought, "A-1-1", ga=3) == "ended", "more tickets than the sale has"
    assert await return_tickets(inventory, bought, "A-1-1", "A-1-1") == "ended", "the same seat twice"
    assert await return_tickets(inventory, bought) == "ended", "no ticket is named"
    assert await counts(inventory) == ((12, 0), (18, 0))


async def test_tickets_of_a_sale_that_redis_missed_are_returned(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis still has a hold where the database has a sale: it applies the sale first, then the return."""
    with monkeypatch.context() as lossy:
        bought = await inventory.hold("one", seats=["A-1-1", "A-1-2"])
        lossy.setattr(inventory.state.redis_stock, "follow", AsyncMock())
        await buy(inventory, bought, "order-one")
    assert await return_tickets(inventory, bought, "A-1-1") == "done"
    assert await counts(inventory) == ((14, 0), (20, 0))


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
