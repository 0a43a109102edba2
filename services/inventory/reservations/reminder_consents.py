"""Consents to reminder mail, which come with a hold and are kept here until orders, which sends mail, acknowledges
them.

Polling is safe to repeat: a consent that was not acknowledged is answered again.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reservations.repository import read_reservations
from shared.contracts.inventory import BATCH_MAX, ReminderConsent

ACKNOWLEDGE = text(
    "UPDATE inventory.reservation SET reminders_requested = false "
    "WHERE reservation_id = ANY(CAST(:ids AS text[])) AND reminders_requested"
)
PENDING = text(
    "SELECT event_id, reservation_id, email FROM inventory.reservation WHERE reminders_requested "
    "ORDER BY reservation_id LIMIT :count_max"
)


async def pending_consents(db: AsyncEngine, *, acknowledged: Sequence[str]) -> list[ReminderConsent]:
    """Marks consents as `acknowledged` (by reservation id), then returns up to `BATCH_MAX` others."""
    async with db.begin() as connection:
        if acknowledged:
            await connection.execute(ACKNOWLEDGE, {"ids": list(acknowledged)})
        rows = (await connection.execute(PENDING, {"count_max": BATCH_MAX})).all()
        emails = {row.reservation_id: row.email for row in rows}
        keys = [(row.event_id, row.reservation_id) for row in rows]
        records = await read_reservations(connection, keys) if keys else {}
    return [ReminderConsent(reservation=records[i].to_contract(), email=email) for i, email in emails.items()]
