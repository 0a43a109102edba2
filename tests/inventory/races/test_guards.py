"""The guards against overselling in Redis and in the database: each is sufficient alone."""

import asyncio

import pytest
from sqlalchemy import text

from services.inventory.redis_stock.client import load_script
from services.inventory.reservations import repository
from services.inventory.reservations.reserve import ReservationBatcher
from shared.redis.scripts import Script
from tests.inventory.conftest import EVENT, Inventory

FANS = 30


def remove_redis_checks(inventory: Inventory) -> None:
    """Redis grants every hold, whether its stock is free or not."""
    source, check = load_script("hold").source, "  if denied then return denied end\n"
    assert check in source
    inventory.state.redis_stock.scripts["hold"] = Script("hold without checks", source.replace(check, ""))


async def remove_database_checks(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database writes every hold that Redis has granted."""
    for check in ("AND s.seats_remaining >= wanted.quantity", "AND s.status = 'available'"):
        assert check in repository.INSERT_HOLDS
        monkeypatch.setattr(repository, "INSERT_HOLDS", repository.INSERT_HOLDS.replace(check, ""))
    async with inventory.state.db.begin() as connection:
        await connection.execute(text("ALTER TABLE inventory.section DROP CONSTRAINT ck_section_never_oversold"))


async def request_at_once(inventory: Inventory) -> tuple[int, int]:
    """Thirty fans request one seat, thirty others the twenty GA tickets; returns how many get each."""
    seat = [inventory.reserve(f"s{i}", seats=["A-1-1"]) for i in range(FANS)]
    ga = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(FANS)]
    answers = [answer.status_code for answer in await asyncio.gather(*seat, *ga)]
    assert set(answers) <= {201, 409, 410}, "granted, denied, or written too late"
    return answers[:FANS].count(201), answers[FANS:].count(201)


async def test_with_both_guards_nothing_is_oversold(inventory: Inventory) -> None:
    assert await request_at_once(inventory) == (1, 20)
    assert await inventory.violations() == []


async def test_the_database_alone_prevents_overselling(inventory: Inventory) -> None:
    remove_redis_checks(inventory)
    assert await request_at_once(inventory) == (1, 20)
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [(s["available"], s["held"]) for s in stock["sections"]] == [(14, 1), (8, 0), (0, 20)]


@pytest.mark.own_database
async def test_redis_alone_prevents_overselling(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    await remove_database_checks(inventory, monkeypatch)
    assert await request_at_once(inventory) == (1, 20)
    assert await inventory.violations() == []


@pytest.mark.own_database
async def test_without_both_guards_seats_and_tickets_are_oversold(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_redis_checks(inventory)
    await remove_database_checks(inventory, monkeypatch)
    assert await request_at_once(inventory) == (FANS, FANS)
    violated = {violation["invariant"][0] for violation in await inventory.violations()}
    assert {"1", "2"} <= violated


async def test_the_last_ticket_goes_to_one_of_two_processes(inventory: Inventory) -> None:
    """Two processes, each with connections of its own, one ticket left."""
    state = inventory.state
    for i in range(3):
        await inventory.reserve(f"big-{i}", ga_section="GA1", ga_quantity=6)
    await inventory.reserve("small", ga_section="GA1", ga_quantity=1)
    other = ReservationBatcher(state.db, state.redis_stock, EVENT, batch_max=8, waiting_max=8)
    own = state.batchers[EVENT]

    async def reserve_last(batcher: ReservationBatcher, holder: str) -> int:
        state.batchers[EVENT] = batcher
        return (await inventory.reserve(holder, ga_section="GA1", ga_quantity=1)).status_code

    answers = await asyncio.gather(reserve_last(own, "left"), reserve_last(other, "right"))
    await other.close()
    assert sorted(answers) == [201, 409]
    assert await inventory.counts("GA1") == (0, 20)
