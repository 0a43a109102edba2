"""The guards against overselling in Redis and in the database: each is sufficient alone."""

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from services.inventory.reservations.reserve import ReservationBatcher
from services.inventory.store import reservations
from tests.inventory.actions import replace_in_script, replace_in_sql, sql
from tests.inventory.conftest import EVENT, Inventory

FANS = 30
REFUSED = {
    "ck_section_never_oversold": "UPDATE inventory.section SET seats_remaining = -1 WHERE section_id = 'GA1'",
    "ck_section_never_more_than_there_is": "UPDATE inventory.section SET seats_remaining = 21 WHERE section_id = 'GA1'",
    "ck_seat_owned_while_held_or_sold": "UPDATE inventory.seat SET status = 'sold' WHERE position = 0",
    "uq_oversell_open": "INSERT INTO inventory.oversell"
    " (event_id, section_id, position, excess, percent, policy, status, from_buffer, overbooked)"
    " SELECT :event_id, 'GA1', -1, 1, 1, 'honour', 'waiting', 0, 0 FROM generate_series(1, 2)",
}


def remove_redis_checks(inventory: Inventory) -> None:
    """Redis grants every hold, whether its stock is free or not."""
    replace_in_script(inventory, "hold", "  if denied then return denied end\n")


async def remove_database_checks(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database writes every hold that Redis has granted."""
    for check in ("AND s.seats_remaining >= wanted.quantity", "AND s.status = 'available'"):
        replace_in_sql(monkeypatch, reservations, "INSERT_HOLDS", check)
    await sql(inventory, "ALTER TABLE inventory.section DROP CONSTRAINT ck_section_never_oversold")


async def request_at_once(inventory: Inventory) -> tuple[int, int]:
    """Thirty fans request one seat, thirty others the twenty GA tickets; returns how many get each."""
    seat = [inventory.reserve(f"s{i}", seats=["A-1-1"]) for i in range(FANS)]
    ga = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(FANS)]
    answers = [answer.status_code for answer in await asyncio.gather(*seat, *ga)]
    assert set(answers) <= {201, 409, 410}, "granted, denied, or written too late"
    return answers[:FANS].count(201), answers[FANS:].count(201)


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("in_database", [True, False])
@pytest.mark.parametrize("in_redis", [True, False])
async def test_either_guard_alone_prevents_overselling(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, in_redis: bool, in_database: bool
) -> None:
    if not in_redis:
        remove_redis_checks(inventory)
    if not in_database:
        await remove_database_checks(inventory, monkeypatch)
    if not in_redis and not in_database:
        assert await request_at_once(inventory) == (FANS, FANS)
        assert {"1", "2"} <= {violation["invariant"][0] for violation in await inventory.violations()}
        return
    assert await request_at_once(inventory) == (1, 20)
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [(s["available"], s["held"]) for s in stock["sections"]] == [(14, 1), (8, 0), (0, 20)]
    assert not in_redis or await inventory.violations() == []


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


@pytest.mark.parametrize("constraint", REFUSED)
async def test_the_database_itself_refuses_what_would_oversell(inventory: Inventory, constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint):
        await sql(inventory, REFUSED[constraint])
