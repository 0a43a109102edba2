"""Consent to reminders comes with a hold, and is kept here until orders, which sends mail, says that it has it."""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reservations.repository import read
from shared.contracts.inventory import BATCH_MAX, Consent

HEARD = text(
    "UPDATE inventory.reservation SET reminders_asked = false "
    "WHERE reservation_id = ANY(CAST(:ids AS text[])) AND reminders_asked"
)
UNHEARD = text(
    "SELECT reservation_id, email FROM inventory.reservation WHERE reminders_asked ORDER BY reservation_id LIMIT :many"
)


async def pending_consents(db: AsyncEngine, heard: Sequence[str]) -> list[Consent]:
    """Forgets those that were heard; some of the others."""
    async with db.begin() as connection:
        if heard:
            await connection.execute(HEARD, {"ids": list(heard)})
        found = await connection.execute(UNHEARD, {"many": BATCH_MAX})
        addresses = {row.reservation_id: row.email for row in found}
        held = await read(connection, list(addresses)) if addresses else {}
    return [Consent(reservation=held[i].to_contract(), email=email) for i, email in addresses.items()]
