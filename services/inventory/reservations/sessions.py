"""The end of a fan's session: a freed slot never leaves a working pass behind.

Whether the holder has a live hold and killing the pass are one step in the gate; while that is not ready, no hold can
be taken and the ledger's row is enough.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.expiry import cancel
from shared.contracts.inventory import EndSessions, PassFloor, SessionEnd, SessionRef
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms
from shared.web.problems import UnknownEvent

LIVE = text(
    "SELECT r.holder, r.reservation_id, r.status, r.reserved_until_ms + 1000 * e.grace_s AS until_ms "
    "FROM inventory.event e CROSS JOIN unnest(CAST(:holders AS text[])) AS a (holder) CROSS JOIN LATERAL ("
    " SELECT * FROM inventory.reservation r WHERE r.event_id = e.event_id AND r.holder = a.holder "
    " AND r.status IN ('pending_payment', 'paying') OFFSET 0) AS r WHERE e.event_id = :event_id"
)
RAISE_FLOOR = text(
    "UPDATE inventory.event SET min_pass_epoch = greatest(min_pass_epoch, :epoch), version = version + 1 "
    "WHERE event_id = :event_id RETURNING min_pass_epoch"
)


async def end_sessions(db: AsyncEngine, redis_stock: RedisStock, question: EndSessions) -> list[SessionEnd]:
    """One end per session, in order."""
    holders = [session.holder for session in question.sessions]
    if question.leaving:
        pending = [
            r
            for rows in (await _live(db, question.event_id, holders)).values()
            for r, s, _ in rows
            if s == "pending_payment"
        ]
        now = now_ms() + redis_stock.clock_offset_ms
        await cancel(db, redis_stock, question.event_id, pending, how="leaving", now_ms=now, actor="queue")
    live = await _live(db, question.event_id, holders)
    ends: list[SessionEnd | None] = [None] * len(question.sessions)
    idle: list[tuple[int, SessionRef]] = []
    for i, session in enumerate(question.sessions):
        untils = [until_ms for _, _, until_ms in live.get(session.holder, [])]
        if untils:
            ends[i] = SessionEnd(word="until", until_ms=max(untils))
        else:
            idle.append((i, session))
    for (i, _), end in zip(idle, await _revoke(db, redis_stock, question.event_id, [s for _, s in idle]), strict=True):
        ends[i] = end
    return [end for end in ends if end is not None]


async def _live(db: AsyncEngine, event_id: str, holders: Sequence[str]) -> dict[str, list[tuple[str, str, int]]]:
    """(reservation, status, until with grace) by holder, from the ledger."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    async with db.connect() as connection:
        for row in await connection.execute(LIVE, {"event_id": event_id, "holders": list(holders)}):
            found.setdefault(row.holder, []).append((row.reservation_id, row.status, row.until_ms))
    return found


async def _revoke(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, sessions: Sequence[SessionRef]
) -> list[SessionEnd]:
    if not sessions:
        return []
    passes = [(s.jti, s.holder, s.expires_at_ms) for s in sessions]
    try:
        words = await redis_stock.revoke(event_id, passes)
    except REDIS_AWAY:
        words = [("not-ready", None)] * len(sessions)
    dead = [p for p, (word, _) in zip(passes, words, strict=True) if word != "live"]
    if dead:
        rows = [{"event_id": event_id, "jti": jti, "expires_at_ms": at_ms} for jti, _, at_ms in sorted(dead)]
        async with db.begin() as connection:
            await connection.execute(insert(tables.revoked_pass).on_conflict_do_nothing(), rows)
    return [
        SessionEnd(word="until", until_ms=until_ms) if word == "live" else SessionEnd(word="gone")
        for word, until_ms in words
    ]


async def raise_floor(db: AsyncEngine, redis_stock: RedisStock, floor: PassFloor) -> PassFloor:
    """Kills every pass of an epoch below the floor: in the ledger first, so that a gate filled meanwhile knows.

    Who holds something keeps it until its deadline and may pay for it; nothing new is taken with such a pass.
    """
    async with db.begin() as connection:
        raised = (await connection.execute(RAISE_FLOOR, floor.model_dump())).scalar_one_or_none()
    if raised is None:
        raise UnknownEvent
    await redis_stock.set_min_pass_epoch(floor.event_id, raised)
    return PassFloor(event_id=floor.event_id, epoch=raised)
