"""Counts in the database by which drills follow the progress of a sale."""

import asyncpg

RESERVATIONS = "SELECT count(*) FROM inventory.reservation WHERE event_id = $1"
INVENTORY_WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND wait_event_type = 'Lock'"
)


async def count_is_at_least(database: asyncpg.Connection, minimum: int, query: str, *values: str) -> bool:
    return bool(await database.fetchval(query, *values) >= minimum)
