"""The end of fans' sessions: a freed slot of the waiting room never leaves a valid pass behind.

Checking for a live hold and revoking the pass are one step in Redis. While Redis is not ready no hold can be made, so
the row in PostgreSQL is enough.
"""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.client import RedisStock, Revocation
from services.inventory.reservations.expiry import cancel_holds
from shared.contracts.inventory import EndSessions, MinPassEpoch, SessionEnd, SessionRef
from shared.errors.problems import UnknownEvent
from shared.postgres.engine import statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms
from shared.security.limits import Buckets

LIVE_RESERVATIONS, REVOKE_PASSES = statement(__package__, "live_reservations"), statement(__package__, "revoke_passes")
RAISE_MIN_PASS_EPOCH = text(
    "UPDATE inventory.event SET min_pass_epoch = greatest(min_pass_epoch, :epoch), version = version + 1 "
    "WHERE event_id = :event_id RETURNING min_pass_epoch"
)


class SessionStock:
    """Ends sessions for the queue; every call may be repeated."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, given_back: Buckets) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._given_back = given_back
        self._single = db.execution_options(isolation_level="AUTOCOMMIT")

    async def end(self, question: EndSessions) -> list[SessionEnd]:
        """One result per session, in order."""
        event_id, holders = question.event_id, [session.holder for session in question.sessions]
        if question.leaving:
            await self._release_unpaid(event_id, holders)
        live = await self._live(event_id, holders)
        gone = iter(await self._revoke(event_id, [s for s in question.sessions if s.holder not in live]))
        return [
            SessionEnd(outcome="until", until_ms=max(row.until_ms for row in live[session.holder]))
            if session.holder in live
            else next(gone)
            for session in question.sessions
        ]

    async def _release_unpaid(self, event_id: str, holders: Sequence[str]) -> None:
        live = await self._live(event_id, holders)
        unpaid = {
            row.reservation_id: row.holder for rows in live.values() for row in rows if row.status == "pending_payment"
        }
        at_ms = now_ms() + self._redis_stock.clock_offset_ms
        for ended in await cancel_holds(
            self._db, self._redis_stock, event_id, list(unpaid), reason="leaving", now_ms=at_ms, actor="queue"
        ):  # fmt: skip
            self._given_back.charge((event_id, unpaid[ended]), now_s=time.monotonic())

    async def _live(self, event_id: str, holders: Sequence[str]) -> dict[str, list[Row[Any]]]:
        """Live reservations by holder, their deadline with grace in ms, from PostgreSQL."""
        found: dict[str, list[Row[Any]]] = {}
        async with self._single.connect() as connection:
            for row in await connection.execute(LIVE_RESERVATIONS, {"event_id": event_id, "holders": list(holders)}):
                found.setdefault(row.holder, []).append(row)
        return found

    async def _revoke(self, event_id: str, sessions: Sequence[SessionRef]) -> list[SessionEnd]:
        if not sessions:
            return []
        passes = [(s.jti, s.holder, s.expires_at_ms) for s in sessions]
        try:
            outcomes = await self._redis_stock.revoke(event_id, passes)
        except REDIS_AWAY:
            outcomes = [Revocation("not-ready")] * len(sessions)
        revoked = [p for p, revocation in zip(passes, outcomes, strict=True) if revocation.outcome != "live"]
        if revoked:
            jtis, _, expire_at_ms = map(list, zip(*revoked, strict=True))
            written = {"event_id": event_id, "jtis": jtis, "expire_at_ms": expire_at_ms}
            async with self._single.connect() as connection:
                await connection.execute(REVOKE_PASSES, written)
        return [
            SessionEnd(outcome="until", until_ms=until_ms) if outcome == "live" else SessionEnd(outcome="gone")
            for outcome, until_ms in outcomes
        ]

    async def set_min_pass_epoch(self, minimum: MinPassEpoch) -> MinPassEpoch:
        """Invalidates every pass of an earlier epoch; PostgreSQL first, so that a rebuild meanwhile has it, too.

        Holders keep their holds until the deadline and may pay for them; such a pass makes no new hold. Raises
        `UnknownEvent`.
        """
        async with self._db.begin() as connection:
            epoch = (await connection.execute(RAISE_MIN_PASS_EPOCH, minimum.model_dump())).scalar_one_or_none()
        if epoch is None:
            raise UnknownEvent
        await self._redis_stock.set_min_pass_epoch(minimum.event_id, epoch)
        await self._catalogue.refresh()
        return MinPassEpoch(event_id=minimum.event_id, epoch=epoch)
