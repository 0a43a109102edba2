"""Two guards against overselling, each sufficient alone; and proof that these tests would notice if both were gone."""

import asyncio

import pytest
from sqlalchemy import text

from services.inventory.redis_stock.client import load_script
from services.inventory.reservations import repository
from shared.redis.scripts import Script
from tests.inventory.conftest import EVENT, Inventory

FANS = 30


def let_redis_check_nothing(inventory: Inventory) -> None:
    """Redis that checks nothing: every seat and every ticket looks free to it."""
    source = load_script("hold").source
    for check in ("  if denied then return denied end\n",):
        assert check in source
        source = source.replace(check, "")
    inventory.state.redis_stock.scripts["hold"] = Script("Redis that checks nothing", source)


async def let_the_database_check_nothing(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that believes Redis."""
    for check in ("AND s.seats_remaining >= wanted.quantity", "AND s.status = 'available'"):
        assert check in repository.INSERT_HOLDS
        monkeypatch.setattr(repository, "INSERT_HOLDS", repository.INSERT_HOLDS.replace(check, ""))
    async with inventory.state.db.begin() as connection:
        await connection.execute(text("ALTER TABLE inventory.section DROP CONSTRAINT ck_section_never_oversold"))


async def rush(inventory: Inventory) -> tuple[int, int]:
    """Thirty fans want one and the same seat, thirty others the twenty places on the floor; how many got them."""
    seat = [inventory.reserve(f"s{i}", seats=["A-1-1"]) for i in range(FANS)]
    floor = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(FANS)]
    answers = [answer.status_code for answer in await asyncio.gather(*seat, *floor)]
    assert set(answers) <= {201, 409}
    return answers[:FANS].count(201), answers[FANS:].count(201)


async def test_with_both_guards_nothing_is_oversold(inventory: Inventory) -> None:
    assert await rush(inventory) == (1, 20)
    assert await inventory.broken() == []


async def test_without_redis_the_database_holds(inventory: Inventory) -> None:
    let_redis_check_nothing(inventory)
    assert await rush(inventory) == (1, 20)
    stock = await inventory.ask("/stock", {"event_id": EVENT})
    assert [(s["available"], s["held"]) for s in stock["sections"]] == [(14, 1), (8, 0), (0, 20)]


async def test_without_the_database_redis_holds(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    await let_the_database_check_nothing(inventory, monkeypatch)
    assert await rush(inventory) == (1, 20)
    assert await inventory.broken() == []


async def test_without_both_these_tests_would_notice(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    let_redis_check_nothing(inventory)
    await let_the_database_check_nothing(inventory, monkeypatch)
    assert await rush(inventory) == (FANS, FANS)
    broken = {finding["invariant"][0] for finding in await inventory.broken()}
    assert {"1", "2"} <= broken


async def test_the_last_ticket_goes_to_one_of_two_processes(inventory: Inventory) -> None:
    """Two processes, each with connections of its own, one ticket left."""
    from services.inventory.reservations.reserve import ReservationBatcher

    state = inventory.state
    for i in range(3):
        await inventory.reserve(f"big-{i}", ga_section="GA1", ga_quantity=6)
    await inventory.reserve("small", ga_section="GA1", ga_quantity=1)
    other = ReservationBatcher(state.db, state.redis_stock, EVENT, batch_max=8, waiting_max=8)
    mine = state.batchers[EVENT]

    async def one(reserver: ReservationBatcher, holder: str) -> int:
        state.batchers[EVENT] = reserver
        return (await inventory.reserve(holder, ga_section="GA1", ga_quantity=1)).status_code

    answers = await asyncio.gather(one(mine, "left"), one(other, "right"))
    await other.close()
    assert sorted(answers) == [201, 409]
    assert await inventory.left("GA1") == (0, 20)
