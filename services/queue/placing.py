"""A batch of places goes to disk: the hottest statements of all, on the driver itself, in three round trips.

The fence; the places with the event that tells of them; the commit. The fence stands alone, because one statement would
read a snapshot older than the lock. What a batch costs is its round trips, not its members.
"""

import importlib.resources
from collections.abc import Sequence

from services.queue.ledger import joined
from services.queue.rooms import Room
from shared.fence import fenced
from shared.postgres import AsyncEngine

PLACE = importlib.resources.files(__package__).joinpath("sql", "place.sql").read_text()
OPEN = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
TELL = "INSERT INTO queue.outbox (event_id, body) VALUES ($1, $2::text::jsonb)"


async def place(
    engine: AsyncEngine, room: Room, lane: int, first: int, joins: Sequence[tuple[str, str | None]], *, fill: int
) -> set[int]:
    """Places (holder, user_id) under the numbers from `first` on; which numbers are on disk now, for good.

    Raises `Unavailable` if nobody can say.
    """
    holders, users = zip(*joins, strict=True)
    wanted = joined(room.event_id, room.epoch, lane, range(first, first + len(joins)))
    async with fenced(engine, OPEN.format(fence=room.fence)) as driver:
        rows = await driver.fetch(
            PLACE, room.event_id, room.epoch, lane, first, holders, users, fill, wanted.model_dump_json()
        )
        landed = {join_seq for (join_seq,) in rows}
        if 0 < len(landed) < len(joins):
            told = joined(room.event_id, room.epoch, lane, landed)
            await driver.execute(TELL, room.event_id, told.model_dump_json())
    return landed
