"""Lanes in the database: one row each, inserted and deleted under the line's fence."""

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from services.queue.problems import LaneInUse
from services.queue.tables import lane, place
from shared.contracts.lanes import Lane
from shared.postgres.engine import AsyncConnection


async def set_lanes(connection: AsyncConnection, event_id: str, epoch: int, wanted: Collection[int]) -> None:
    """Inserts and deletes lanes of the room. The caller holds the fence, so no batch of places is being written.

    Raises `LaneInUse` for a lane that had a place in this epoch. Its row is locked before that check: joins that the
    database numbers hold that row lock instead of the fence.
    """
    of_room = (lane.c.event_id == event_id, lane.c.epoch == epoch)
    rows = await connection.execute(select(lane.c.lane).where(*of_room).order_by(lane.c.lane).with_for_update())
    present = set(rows.scalars())
    gone = present - set(wanted)
    if gone:
        query = select(place.c.lane).where(place.c.event_id == event_id, place.c.epoch == epoch)
        used = (await connection.execute(query.where(place.c.lane.in_(gone)).limit(1))).scalar()
        if used is not None:
            raise LaneInUse(f"Lane {used} has places. Reset the queue before you remove it.", lane=used)
        await connection.execute(delete(lane).where(*of_room, lane.c.lane.in_(gone)))
    await add_lanes(connection, event_id, epoch, set(wanted) - present)


async def add_lanes(connection: AsyncConnection, event_id: str, epoch: int, lanes: Collection[int]) -> None:
    if lanes:
        rows = [{"event_id": event_id, "epoch": epoch, "lane": n, "head_seq": 0} for n in sorted(lanes)]
        await connection.execute(insert(lane), rows)


def lane_redis_fields(lanes: Collection[Lane]) -> dict[str, int]:
    """Names and values of the lanes for the room's Redis hash."""
    fields: dict[str, int] = {}
    for one in lanes:
        fields[f"weight:{one.lane}"] = one.weight
        fields[f"lane_opens_ms:{one.lane}"] = one.opens_ms
        fields[f"lane_max:{one.lane}"] = one.max_line or 0
    return fields
