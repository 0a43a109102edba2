"""A batch of places goes to disk: the hottest statements of all, on the driver itself, in three round trips.

The fence; the places with the event that tells of them; the commit. The fence stands alone, because one statement would
read a snapshot older than the lock. What a batch costs is its round trips, not its members.
"""

import importlib.resources
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from services.queue.ledger import joined
from services.queue.rooms import Room
from shared.postgres import AsyncEngine
from shared.problems import Unavailable

PLACE = importlib.resources.files(__package__).joinpath("sql", "place.sql").read_text()
OPEN = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
TELL = "INSERT INTO queue.outbox (event_id, body) VALUES ($1, $2::text::jsonb)"
LEDGER_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    OSError,
)


async def place(
    engine: AsyncEngine, room: Room, lane: int, first: int, joins: Sequence[tuple[str, str | None]], *, fill: int
) -> set[int]:
    """Places (holder, user_id) under the numbers from `first` on; which numbers are on disk now, for good.

    Raises `Unavailable` if nobody can say.
    """
    holders, users = zip(*joins, strict=True)
    wanted = joined(room.event_id, room.epoch, lane, range(first, first + len(joins)))
    async with _fenced(engine, room) as driver:
        rows = await driver.fetch(
            PLACE, room.event_id, room.epoch, lane, first, holders, users, fill, wanted.model_dump_json()
        )
        landed = {join_seq for (join_seq,) in rows}
        if 0 < len(landed) < len(joins):
            told = joined(room.event_id, room.epoch, lane, landed)
            await driver.execute(TELL, room.event_id, told.model_dump_json())
    return landed


@asynccontextmanager
async def _fenced(engine: AsyncEngine, room: Room) -> AsyncIterator[Any]:
    """A transaction that holds off a filling; what follows must name the filling it came from."""
    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        try:
            await driver.execute(OPEN.format(fence=room.fence))
            yield driver
            await driver.execute("COMMIT")
        except BaseException as failed:
            await connection.invalidate()  # nobody knows what state it is in; the server rolls back
            if isinstance(failed, LEDGER_AWAY):
                raise Unavailable("The ledger does not answer.") from failed
            raise
