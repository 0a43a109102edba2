"""What a customer may have, asked for by twenty requests at once, and again after everything that gives places back."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import load_script
from services.inventory.reservations import payment, repository
from shared.redis.scripts import Script
from tests.inventory.conftest import EVENT, Inventory, event_file

KEYS = Keys.of(EVENT)
SEATS = [
    *(f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)),
    *(f"B-1-{n}" for n in range(1, 5)),
    "B-2-1",
]
LIVE = "  if #live >= request.live_max then return deny('limit-exceeded', 'active_reservations_per_customer') end\n"
TICKETS = "  if request.tickets_max > 0 and had + quantity > request.tickets_max then\n"


async def twenty(inventory: Inventory, holder: str = "fan") -> Counter[str]:
    """Twenty requests of one holder at once, each for another seat: what they were answered."""
    answers = await asyncio.gather(*(inventory.reserve(holder, seats=[seat]) for seat in SEATS))
    return Counter(str(answer.json().get("limit", answer.status_code)) for answer in answers)


async def hold(inventory: Inventory, holder: str, seat: str, **more: Any) -> str:
    answer = await inventory.reserve(holder, seats=[seat], **more)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reservation_id"])


async def usage(inventory: Inventory, holder: str = "fan") -> tuple[int, int]:
    """Tickets and live reservations as Redis counts them."""
    tickets, live = await inventory.state.redis_stock.redis.hmget(KEYS.usage, f"t:{holder}", f"l:{holder}")
    return int(tickets or 0), len((live or b"").split(b",")) if live else 0


@pytest.mark.parametrize("guarded", [True, False])
async def test_of_twenty_requests_at_once_one_is_held(still: Inventory, guarded: bool) -> None:
    if not guarded:
        _without(still, LIVE, "")
    answers = await twenty(still)
    if guarded:
        assert answers == {"201": 1, "active_reservations_per_customer": 19}
    else:
        assert answers == {"201": 6, "tickets_per_customer": 14}, "the limit of tickets is another"
    assert await still.broken() == []


@pytest.mark.parametrize("guarded", [True, False])
async def test_of_twenty_requests_at_once_six_tickets_are_held(still: Inventory, guarded: bool) -> None:
    await still.put(event_file(active_reservations_per_customer=0))
    if not guarded:
        _without(still, TICKETS, "  if false then\n")
    assert await twenty(still) == ({"201": 6, "tickets_per_customer": 14} if guarded else {"201": 20})
    assert await still.broken() == []


def _without(inventory: Inventory, check: str, instead: str) -> None:
    source = load_script("hold").source
    assert check in source
    inventory.state.redis_stock.scripts["hold"] = Script("Redis without a limit", source.replace(check, instead))


async def test_a_limit_of_zero_is_no_limit(still: Inventory) -> None:
    none = {"tickets_per_customer": 0, "active_reservations_per_customer": 0, "open_orders_per_customer": 0}
    await still.put(event_file(**none))
    answers = await asyncio.gather(*(still.reserve(seats=[seat]) for seat in SEATS))
    assert {answer.status_code for answer in answers} == {201}
    ids = [answer.json()["reservation_id"] for answer in answers]
    begun = await asyncio.gather(*(still.step("begin-payment", r, f"order-{r}", "one-customer") for r in ids))
    assert {step["outcome"] for step in begun} == {"done"}


async def test_the_same_request_twenty_times_at_once_is_one_reservation(still: Inventory) -> None:
    answers = await asyncio.gather(*(still.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=2) for _ in SEATS))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["reservation_id"] for answer in answers}) == 1
    assert await usage(still) == (3, 1)


@pytest.mark.parametrize("end", ["given back", "order released", "expired", "operator"])
async def test_what_ends_unsold_counts_no_more(still: Inventory, end: str) -> None:
    for _ in range(2):  # twice: what is given back once too often would show
        made = await hold(still, "fan", "A-1-1", ga_section="GA1", ga_quantity=5)
        assert (await still.reserve(seats=["B-1-1"])).json()["limit"] == "active_reservations_per_customer"
        if end == "given back":
            await still.mine("DELETE", made)
        elif end == "operator":
            await still.admin("POST", f"/reservations/{made}/release")
        elif end == "order released":
            await still.step("begin-payment", made, f"order-{made}", "c")
            await still.step("release", made, f"order-{made}")
        else:
            still.travel(606_000)
            await still.state.expiry_worker.sweep()
        assert await usage(still) == (0, 0)
    await _holds_six_again(still)


async def _holds_six_again(inventory: Inventory) -> None:
    made = await hold(inventory, "fan", "A-2-1", ga_section="GA1", ga_quantity=5)
    begun = await inventory.step("begin-payment", made, "last-order", "c")
    assert begun["outcome"] == "done", "neither the holder nor the customer has anything else"


async def test_what_was_bought_counts_as_tickets_but_not_as_live(still: Inventory) -> None:
    made = await hold(still, "fan", "A-1-1", ga_section="GA1", ga_quantity=3)
    await still.step("begin-payment", made, "order-1", "c")
    assert (await still.reserve(seats=["A-1-2"])).json()["limit"] == "active_reservations_per_customer"
    await still.step("confirm", made, "order-1")
    assert await usage(still) == (4, 0)
    assert (await still.reserve(seats=["A-2-1", "A-2-2", "A-2-3"])).json()["limit"] == "tickets_per_customer"
    assert (await still.reserve(seats=["A-2-1", "A-2-2"])).status_code == 201


async def test_redis_that_forgot_everything_still_knows_the_limits(still: Inventory) -> None:
    bought = await hold(still, "fan", "B-2-4", ga_section="GA1", ga_quantity=3)
    await still.step("begin-payment", bought, "order-1")
    await still.step("confirm", bought, "order-1")
    await hold(still, "fan", "A-2-1")
    before = await usage(still)
    await still.state.redis_stock.redis.flushall()
    await still.state.redis_monitor.check()
    assert before == await usage(still) == (5, 1)
    assert await twenty(still) == {"active_reservations_per_customer": 19, "201": 1}, "one is the reservation it has"
    await still.put(event_file(active_reservations_per_customer=0))
    assert await twenty(still) == {"201": 2, "tickets_per_customer": 18}, "one more, and the one it has"


@pytest.mark.parametrize("guarded", [True, False])
async def test_twenty_holders_of_one_customer_pay_for_six_tickets(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    await still.put(event_file(open_orders_per_customer=0))
    if not guarded:
        monkeypatch.setattr(payment, "lock_for_payment", repository.lock_reservations)
        slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.3))"
        monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    ids = [await hold(still, f"fan-{seat}", seat) for seat in SEATS]
    begun = await asyncio.gather(*(still.step("begin-payment", r, f"order-{r}", "one-customer") for r in ids))
    words = Counter(step["outcome"] for step in begun)
    if not guarded:
        assert words["done"] > 6
        return
    assert words == {"done": 6, "limit-exceeded": 14}
    paid = [r for r, step in zip(ids, begun, strict=True) if step["outcome"] == "done"]
    await still.step("confirm", paid[0], f"order-{paid[0]}")
    await still.step("release", paid[1], f"order-{paid[1]}")
    rest = [r for r in ids if r not in paid]
    again = await asyncio.gather(*(still.step("begin-payment", r, f"order-{r}", "one-customer") for r in rest))
    assert Counter(step["outcome"] for step in again) == {"done": 1, "limit-exceeded": 13}, "one was released"
