"""What the audit promises to find, put into the database on purpose: each fault alone, and told by its invariant."""

import pytest

from tests.inventory.conftest import Inventory
from tests.inventory.selling import sold, sql

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
async def test_whose_a_seat_is_is_audited(still: Inventory, fault: str) -> None:
    bought = await sold(still, "buyer", seats=["A-1-1"])
    twice = await sold(still, "other", seats=["A-1-2"])
    held = (await still.reserve("holder", seats=["A-1-3"])).json()["reservation_id"]
    assert await still.broken() == []
    statement, invariants = FAULTS[fault]
    named = {"bought": bought, "twice": twice, "held": held}
    await sql(still, statement, **{name: value for name, value in named.items() if f":{name}" in statement})
    told = {finding["invariant"]: finding["detail"] for finding in await still.broken()}
    assert {name for name in told if name[:2] in ("2 ", "7 ")} == invariants
    if AT_MOST_ONE in told:
        assert told[AT_MOST_ONE].startswith("1 violated: A:0 "), told
