"""What PostgreSQL refuses by itself, whatever statement is wrong."""

import pytest
from sqlalchemy.exc import IntegrityError

from tests.inventory.actions import sql
from tests.inventory.conftest import Inventory

REFUSED = {
    "ck_section_never_oversold": "UPDATE inventory.section SET seats_remaining = -1 WHERE section_id = 'GA1'",
    "ck_section_never_more_than_there_is": "UPDATE inventory.section SET seats_remaining = 21 WHERE section_id = 'GA1'",
    "ck_seat_owned_while_held_or_sold": "UPDATE inventory.seat SET status = 'sold' WHERE position = 0",
    "uq_oversell_open": "INSERT INTO inventory.oversell"
    " (event_id, section_id, position, excess, percent, policy, status, from_buffer, overbooked)"
    " SELECT :event_id, 'GA1', -1, 1, 1, 'honour', 'waiting', 0, 0 FROM generate_series(1, 2)",
}


@pytest.mark.parametrize("constraint", REFUSED)
async def test_the_database_itself_refuses_what_would_oversell(inventory: Inventory, constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint):
        await sql(inventory, REFUSED[constraint])
