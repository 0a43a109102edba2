"""The invariants of seat ownership: each fault, written to the database on purpose, violates its invariants."""

import pytest

from tests.inventory.actions import sell, sql
from tests.inventory.conftest import Inventory

OWNER, AT_MOST_ONE = "7 confirmed ⇒ its seats are sold to it", "2 a seat has at most one live owner"
SEAT = "event_id = :event_id AND section_id = 'A' AND position = 0"
FAULTS = {
    "a buyer's seat is somebody else's": (
        f"UPDATE inventory.seat SET reservation_id = :held WHERE {SEAT}", {AT_MOST_ONE, OWNER}
    ),
    "a buyer's seat is only held": (f"UPDATE inventory.seat SET status = 'held' WHERE {SEAT}", {AT_MOST_ONE, OWNER}),
    "a buyer's seat is free": (
        f"UPDATE inventory.seat SET status = 'available', reservation_id = NULL WHERE {SEAT}", {AT_MOST_ONE, OWNER}
    ),
    "a seat is sold to a reservation that ended": (
        "UPDATE inventory.reservation SET status = 'refunded', confirmed_at = NULL WHERE reservation_id = :bought",
        {AT_MOST_ONE},
    ),
    "a seat is sold to a reservation without it": (
        "DELETE FROM inventory.reservation_seat WHERE reservation_id = :bought", {AT_MOST_ONE}
    ),
    "a seat is sold and held": (
        "INSERT INTO inventory.reservation_seat SELECT event_id, :held, section_id, position, unit_price_minor "
        "FROM inventory.reservation_seat WHERE reservation_id = :bought",
        {AT_MOST_ONE},
    ),
    "a seat is sold twice": (
        "INSERT INTO inventory.reservation_seat SELECT event_id, :twice, section_id, position, unit_price_minor "
        "FROM inventory.reservation_seat WHERE reservation_id = :bought",
        {AT_MOST_ONE, OWNER},
    ),
    "a sale has no order": (
        "UPDATE inventory.reservation SET order_reference = NULL WHERE reservation_id = :bought", {OWNER}
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_fault_of_seat_ownership_breaks_its_invariant(inventory: Inventory, fault: str) -> None:
    bought = await sell(inventory, "buyer", seats=["A-1-1"])
    twice = await sell(inventory, "other", seats=["A-1-2"])
    held = await inventory.hold("holder", seats=["A-1-3"])
    assert await inventory.violations() == []
    statement, invariants = FAULTS[fault]
    named = {"bought": bought, "twice": twice, "held": held}
    await sql(inventory, statement, **{name: value for name, value in named.items() if f":{name}" in statement})
    violated = {violation["invariant"]: violation["detail"] for violation in await inventory.violations()}
    assert {name for name in violated if name[:2] in ("2 ", "7 ")} == invariants
    if AT_MOST_ONE in violated:
        assert violated[AT_MOST_ONE].startswith("1 violated: A:0 "), violated
