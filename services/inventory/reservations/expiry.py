"""Holds that end without a sale: PostgreSQL decides by compare-and-set, then Redis follows.

A due hold in Redis is only a question. PostgreSQL answers: expired, never written (a tombstone takes its id), or
something else, which Redis then takes over. A hold has expired only if every clock says so: Redis', PostgreSQL's and
this process'.
"""

from collections.abc import Sequence
from typing import Literal

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.metrics import HOLD_ENDED_LATE, HOLDS_ENDED
from services.inventory.redis_stock.client import RedisStock, as_in_db, ended
from services.inventory.store.reservations import ReservationRow, event_body, read_reservations
from shared.concurrency.background import wake
from shared.contracts.frames import ReservationState
from shared.postgres.engine import statement

ReleaseReason = Literal["deadline", "scan", "cancelled", "operator", "release-all", "leaving", "order", "orders-gone"]

END_UNPAID = statement(__package__, "end_unpaid")
SCAN_DUE = statement(__package__, "scan_due")
INSERT_TOMBSTONES = statement(__package__, "insert_tombstones")
RELEASE_STOCK = statement(__package__, "release_stock")


async def release_stock(
    connection: AsyncConnection,
    event_id: str,
    ids: Sequence[str],
    *,
    reason: ReleaseReason,
    now_ms: int,
    actor: str = "system",
) -> None:
    """Releases the places of reservations that ended in an earlier statement of this transaction, with log rows and
    events, whose reservations the statement fills in.
    """
    if not ids:
        return
    values = {
        "event_id": event_id, "ids": list(ids), "reason": reason, "now_ms": now_ms,
        "expired": orjson.dumps(event_body(event_id, "expired", [], actor=actor)).decode(),
        "cancelled": orjson.dumps(event_body(event_id, "cancelled", [], actor=actor)).decode(),
    }  # fmt: skip
    wake("inventory")
    for release_at_ms in (await connection.execute(RELEASE_STOCK, values)).scalars():
        HOLDS_ENDED.labels(reason).inc()
        HOLD_ENDED_LATE.observe(max(0, now_ms - release_at_ms) / 1000)


async def cancel_holds(
    db: AsyncEngine,
    redis_stock: RedisStock,
    event_id: str,
    ids: Sequence[str],
    *,
    reason: ReleaseReason,
    now_ms: int,
    actor: str,
) -> list[str]:
    """Cancels those that are not being paid; which ones."""
    async with db.begin() as connection:
        cancelled = await _end(
            connection, redis_stock, event_id, ids, status="cancelled", reason=reason, now_ms=now_ms, actor=actor
        )
    await redis_stock.follow(event_id, [ended(*one) for one in cancelled.items()])
    return list(cancelled)


async def _end(
    connection: AsyncConnection, redis_stock: RedisStock, event_id: str, ids: Sequence[str], *, now_ms: int,
    reason: ReleaseReason, status: ReservationState = "expired", actor: str = "system",
) -> dict[str, int]:  # fmt: skip
    """Ends those that nobody is paying, as expired only past their deadline by every clock; their versions by id."""
    if status == "expired":
        now_ms = min(now_ms, redis_stock.slowest_ms())
    values = {"ids": list(ids), "status": status, "now_ms": now_ms, "clock_offset_ms": redis_stock.clock_offset_ms}
    rows = await connection.execute(END_UNPAID, {"event_id": event_id, **values})
    versions = {row.reservation_id: row.version for row in rows}
    await release_stock(connection, event_id, list(versions), reason=reason, now_ms=now_ms, actor=actor)
    return versions


async def resolve_due(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, due: Sequence[str], *, now_ms: int
) -> bool:
    """Lets PostgreSQL decide about due holds and updates Redis; whether any has ended."""
    async with db.begin() as connection:
        over = await _end(connection, redis_stock, event_id, due, now_ms=now_ms, reason="deadline")
    known = dict[str, ReservationRow]()
    if rest := [reservation_id for reservation_id in due if reservation_id not in over]:
        async with db.begin() as connection:
            values = {"event_id": event_id, "ids": rest, "now_ms": now_ms}
            rows = await connection.execute(INSERT_TOMBSTONES, values)
            tombstones = {row.reservation_id: row.version for row in rows}
        HOLDS_ENDED.labels("never-written").inc(len(tombstones))
        async with db.connect() as connection:
            known = await read_reservations(connection, [(event_id, r) for r in rest if r not in tombstones])
        over |= tombstones
    changes = [ended(*one) for one in over.items()] + [as_in_db(row) for row in known.values()]
    await redis_stock.follow(event_id, changes)
    return bool(over)


async def expire_overdue(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, *, now_ms: int, count_max: int = 500
) -> int:
    """Expires holds past their deadline in PostgreSQL, independent of Redis; how many."""
    values = {"event_id": event_id, "now_ms": now_ms, "count_max": count_max}
    async with db.begin() as connection:
        ids = list((await connection.execute(SCAN_DUE, values)).scalars())
        over = await _end(connection, redis_stock, event_id, ids, now_ms=now_ms, reason="scan") if ids else {}
    await redis_stock.follow(event_id, [ended(*one) for one in over.items()])
    return len(over)
