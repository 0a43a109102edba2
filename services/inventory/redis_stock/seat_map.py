"""The status of a section's seats, for a fan with a pass: from Redis, or from PostgreSQL while Redis is not ready.

A pass that was revoked shows no seats any more.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.selection import SeatPosition
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock.client import RedisStock
from services.inventory.store.snapshot import MARKS
from shared.errors.problems import BadCredential
from shared.redis.client import REDIS_AWAY

STATUS_OF_MARK = {".": "available", "h": "reserved", "s": "sold", "x": "blocked"}
HOLDER_GONE = "This pass has ended: its holder left or finished. Join the line again."
IS_REVOKED = text("SELECT EXISTS (SELECT FROM inventory.revoked_pass WHERE event_id = :event_id AND jti = :jti)")
SEAT_STATUSES = text(
    "SELECT position, status FROM inventory.seat WHERE event_id = :event_id AND section_id = :section_id "
    "AND position BETWEEN :first AND :last"
)


async def seat_statuses(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, section_id: str, *, first: int, last: int, jti: str
) -> dict[int, str]:
    """Status by position, from `first` to `last`. Raises `BadCredential` if the pass `jti` was revoked."""
    keys = Keys.of(event_id)
    try:
        pipe = redis_stock.redis.pipeline(transaction=True)
        pipe.hget(keys.meta, "ready").getrange(keys.map + section_id, first, last).zscore(keys.revoked, jti)
        ready, marks, revoked = await pipe.execute()
        if ready == b"1" and revoked is not None:
            raise BadCredential(HOLDER_GONE)
        if ready == b"1" and len(marks) == last - first + 1:
            return {first + i: STATUS_OF_MARK.get(mark, "") for i, mark in enumerate(marks.decode())}
    except REDIS_AWAY:
        pass
    values = {"event_id": event_id, "section_id": section_id, "first": first, "last": last}
    async with db.connect() as connection:
        if await connection.scalar(IS_REVOKED, {"event_id": event_id, "jti": jti}):
            raise BadCredential(HOLDER_GONE)
        rows = await connection.execute(SEAT_STATUSES, values)
        return {row.position: STATUS_OF_MARK[MARKS[row.status]] for row in rows}


async def alone_among(redis_stock: RedisStock, event_id: str, seats: Sequence[SeatPosition]) -> list[SeatPosition]:
    """Those of these seats that are available without an available neighbour in their row; none while Redis is away."""
    keys = Keys.of(event_id)
    pipe = redis_stock.redis.pipeline(transaction=False)
    for section_id, position in seats:
        pipe.getrange(keys.map + section_id, max(0, position - 1), position + 1)
    try:
        found = await pipe.execute()
    except REDIS_AWAY:
        return []
    around = [marks if position else b"|" + marks for (_, position), marks in zip(seats, found, strict=True)]
    return [seat for seat, marks in zip(seats, around, strict=True) if marks[1:2] == b"." and marks.count(b".") == 1]


async def require_not_revoked(db: AsyncEngine, redis_stock: RedisStock, event_id: str, jti: str) -> None:
    """Raises `BadCredential` if the pass `jti` was revoked."""
    keys = Keys.of(event_id)
    try:
        pipe = redis_stock.redis.pipeline(transaction=False)
        ready, revoked = await pipe.hget(keys.meta, "ready").zscore(keys.revoked, jti).execute()
    except REDIS_AWAY:
        ready = revoked = None
    if ready != b"1":
        async with db.connect() as connection:
            revoked = await connection.scalar(IS_REVOKED, {"event_id": event_id, "jti": jti}) or None
    if revoked is not None:
        raise BadCredential(HOLDER_GONE)
