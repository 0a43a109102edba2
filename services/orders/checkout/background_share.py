"""Which share of an event's checkouts is settled in the background: `checkout.background_percent`, switched live.

The same fan is always on the same side, and raising the share only adds to it. Every process looks once a second; an
event nobody said anything about is settled in the background altogether.
"""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.audit import audit_log
from services.orders.audit.tables import checkout_share
from shared.contracts.event_file import EventFile
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.rules.rollout import within

REFRESH_S = 1.0
EVENTS_MAX = 10_000
ALL = 100.0


class BackgroundShare:
    """What this process knows of every event's share."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._percent: dict[str, float] = {}

    def in_background(self, event_id: str, holder: str) -> bool:
        """Whether this fan's checkout is left to the workers."""
        return within("background", event_id, holder, self.percent(event_id))

    def percent(self, event_id: str) -> float:
        return self._percent.get(event_id, ALL)

    async def refresh(self) -> None:
        """Reads them all."""
        latest = select(checkout_share.c.event_id, checkout_share.c.background_percent)
        async with self._db.connect() as connection:
            rows = await connection.execute(latest.order_by(checkout_share.c.changed_at.desc()).limit(EVENTS_MAX))
            self._percent = {row.event_id: row.background_percent for row in rows}

    async def change(self, event_id: str, percent: float, *, actor: str, action: str, reason: str | None) -> bool:
        """Whether anything is different now; then it is in the audit trail, and every process sees it in a second."""
        async with self._db.begin() as connection:
            changed = await _write(connection, event_id, percent, actor=actor, action=action, reason=reason)
        self._percent[event_id] = percent
        return changed


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str) -> bool:
    """The event file's part, in the caller's transaction; without one, what was set by hand stays. Whether anything is
    different now.
    """
    if file.checkout is None:
        return False
    percent = file.checkout.background_percent
    return await _write(connection, file.event_id, percent, actor=actor, action="apply", reason=None)


async def _write(
    connection: AsyncConnection, event_id: str, percent: float, *, actor: str, action: str, reason: str | None
) -> bool:
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("share " + event_id, 0))))
    mine = select(checkout_share.c.background_percent).where(checkout_share.c.event_id == event_id)
    before = await connection.scalar(mine)
    if before == percent:
        return False
    row = insert(checkout_share).values(event_id=event_id, background_percent=percent)
    await connection.execute(
        row.on_conflict_do_update(
            index_elements=[checkout_share.c.event_id],
            set_={"background_percent": percent, "changed_at": func.now()},
        )
    )
    await audit_log.write(
        connection, actor=actor, action=action, subject=f"event:{event_id}", reason=reason,
        before=_json(before), after=_json(percent),
    )  # fmt: skip
    return True


def _json(percent: float | None) -> dict[str, Any] | None:
    return None if percent is None else {"background_percent": percent}
