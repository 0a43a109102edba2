"""How holds end without a sale: the ledger decides by compare-and-set, then the gate follows.

A due hold is only a question. The ledger answers: expired, never written (a tombstone takes its place first), or
something else, and then the gate takes that. A hold has expired when no clock says that it still lasts: not the
engine's, not the ledger's, not ours.
"""

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.metrics import ENDED, ENDED_LATE
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, What, emit
from services.inventory.reservations.repository import ReservationRow, read
from shared.postgres.engine import statement

ReleaseReason = Literal["deadline", "scan", "cancelled", "operator", "release-all", "leaving", "order", "orders-gone"]

EXPIRE = statement(__package__, "expire")
CANCEL = statement(__package__, "cancel")
SCAN_DUE = statement(__package__, "scan_due")
TOMBSTONES = statement(__package__, "tombstones")
GIVE_BACK = statement(__package__, "give_back")
MARK_SEATS = statement(__package__, "mark_seats")


async def release_stock(
    connection: AsyncConnection,
    event_id: str,
    ended: Sequence[str],
    *,
    how: ReleaseReason,
    now_ms: int,
    actor: str = "system",
) -> None:
    """Frees the places of reservations whose end was decided in this transaction."""
    if not ended:
        return
    ids = list(ended)
    await connection.execute(GIVE_BACK, {"event_id": event_id, "ids": ids, "how": how, "now_ms": now_ms})
    await connection.execute(MARK_SEATS, {"event_id": event_id, "ids": ids, "mark": "available"})
    records = await read(connection, ids)
    await emit(connection, event_id, [_fact(record) for record in records.values()], actor=actor)
    for record in records.values():
        ENDED.labels(how).inc()
        ENDED_LATE.observe(max(0, now_ms - record.release_at_ms) / 1000)


def _fact(record: ReservationRow) -> ReservationEvent:
    what: What = "expired" if record.status == "expired" else "cancelled"
    return ReservationEvent(what, record.reservation_id, record.version, {"status": record.status, **record.places()})


async def _end(
    db: AsyncEngine,
    event_id: str,
    ids: Sequence[str],
    *,
    by: TextClause,
    how: ReleaseReason,
    now_ms: int,
    actor: str,
    clock_offset_ms: int = 0,
) -> list[str]:
    times = {"now_ms": now_ms, "clock_offset_ms": clock_offset_ms} if by is EXPIRE else {}
    values = {"event_id": event_id, "ids": list(ids), **times}
    async with db.begin() as connection:
        ended = list((await connection.execute(by, values)).scalars())
        await release_stock(connection, event_id, ended, how=how, now_ms=now_ms, actor=actor)
    return ended


async def cancel(
    db: AsyncEngine,
    redis_stock: RedisStock,
    event_id: str,
    ids: Sequence[str],
    *,
    how: ReleaseReason,
    now_ms: int,
    actor: str,
) -> list[str]:
    """Gives back those that nobody is paying; which ones."""
    ended = await _end(db, event_id, ids, by=CANCEL, how=how, now_ms=now_ms, actor=actor)
    await redis_stock.release(event_id, ended)
    return ended


async def resolve_due(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, due: Sequence[str], *, now_ms: int
) -> bool:
    """Asks the ledger what these due holds are, and brings the gate in line; whether any has ended."""
    times = {"now_ms": min(now_ms, redis_stock.slowest_ms()), "clock_offset_ms": redis_stock.clock_offset_ms}
    expired = await _end(db, event_id, due, by=EXPIRE, how="deadline", actor="system", **times)
    rest = [reservation_id for reservation_id in due if reservation_id not in set(expired)]
    if rest:
        async with db.begin() as connection:
            values = {"event_id": event_id, "ids": rest, "now_ms": now_ms}
            tombs = set((await connection.execute(TOMBSTONES, values)).scalars())
        ENDED.labels("never-written").inc(len(tombs))
        async with db.connect() as connection:
            known = await read(connection, [reservation_id for reservation_id in rest if reservation_id not in tombs])
        expired += tombs
        await sync_redis(redis_stock, event_id, list(known.values()))
    await redis_stock.release(event_id, expired)
    return bool(expired)


async def sync_redis(redis_stock: RedisStock, event_id: str, records: Sequence[ReservationRow]) -> None:
    """The gate takes the state these reservations have in the ledger."""
    by_status: dict[str, list[ReservationRow]] = {}
    for record in records:
        by_status.setdefault(record.status, []).append(record)
    pending = by_status.pop("pending_payment", [])
    if pending:
        untils = [(r.reservation_id, r.reserved_until_ms) for r in pending]
        await redis_stock.extend(event_id, untils, grace_ms=pending[0].grace_s * 1000)
    paying = by_status.pop("paying", [])
    await redis_stock.begin_payment(event_id, [(r.reservation_id, r.reserved_until_ms) for r in paying])
    await redis_stock.confirm(event_id, [r.reservation_id for r in by_status.pop("confirmed", [])])
    await redis_stock.release(event_id, [r.reservation_id for ended in by_status.values() for r in ended])


async def expire_overdue(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, *, now_ms: int, count_max: int = 500
) -> int:
    """Ends what is past its deadline in the ledger, whatever the gate remembers; how many."""
    values = {"event_id": event_id, "now_ms": now_ms, "count_max": count_max}
    async with db.begin() as connection:
        ids = list((await connection.execute(SCAN_DUE, values)).scalars())
        if ids:
            times = {"now_ms": min(now_ms, redis_stock.slowest_ms()), "clock_offset_ms": redis_stock.clock_offset_ms}
            expire = {"event_id": event_id, "ids": ids, **times}
            ids = list((await connection.execute(EXPIRE, expire)).scalars())
            await release_stock(connection, event_id, ids, how="scan", now_ms=now_ms)
    await redis_stock.release(event_id, ids)
    return len(ids)
