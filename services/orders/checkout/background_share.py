"""The share of an event's checkouts that workers process in the background (`checkout.background_percent`).

The rest is processed inside the request. The same fan is always on the same side, and a larger share only adds fans.
Every process reloads once a second while orders are written, and rarely otherwise; without a setting all checkouts are
in the background.
"""

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.tables import audit_log, background_share
from shared.audit_log import Actor, of_event
from shared.concurrency.background import Quiet
from shared.contracts.event_file import EventFile
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.rules.rollout import within

REFRESH_S = 1.0
EVENTS_MAX = 10_000
ALL = 100.0


class BackgroundShare:
    """The share of every event, as last loaded."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._percent: dict[str, float] = {}

    def in_background(self, event_id: str, holder: str) -> bool:
        """Whether workers process this fan's checkouts."""
        return within("background", event_id, holder, self.percent(event_id))

    def percent(self, event_id: str) -> float:
        return self._percent.get(event_id, ALL)

    async def refresh(self) -> Quiet:
        """Loads the share of every event."""
        query = select(background_share.c.event_id, background_share.c.background_percent)
        async with self._db.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            rows = await connection.execute(query.order_by(background_share.c.changed_at.desc()).limit(EVENTS_MAX))
            self._percent = {row.event_id: row.background_percent for row in rows}
        return Quiet()

    async def change(self, event_id: str, percent: float, *, actor: str, action: str, reason: str | None) -> bool:
        """Changes the share and writes it to the audit log; other processes see it within a second. False if it is the
        same already.
        """
        async with self._db.begin() as connection:
            changed = await _write(connection, event_id, percent, actor=actor, action=action, reason=reason)
        self._percent[event_id] = percent
        return changed


async def apply(connection: AsyncConnection, file: EventFile, *, actor: str, reason: str | None) -> bool:
    """Applies the event file's part in the caller's transaction; without one a share set by hand stays. Whether
    anything changed.
    """
    if file.checkout is None:
        return False
    percent = file.checkout.background_percent
    return await _write(connection, file.event_id, percent, actor=actor, action="apply", reason=reason)


async def stored_percent(connection: AsyncConnection, event_id: str) -> float | None:
    """The event's share; None if nobody set one."""
    query = select(background_share.c.background_percent).where(background_share.c.event_id == event_id)
    percent: float | None = await connection.scalar(query)
    return percent


async def _write(
    connection: AsyncConnection, event_id: str, percent: float, *, actor: str, action: str, reason: str | None
) -> bool:
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("share " + event_id, 0))))
    before = await stored_percent(connection, event_id)
    if before == percent:
        return False
    statement = insert(background_share).values(event_id=event_id, background_percent=percent)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=[background_share.c.event_id],
            set_={"background_percent": percent, "changed_at": func.now()},
        )
    )
    await audit_log.write(
        connection, action, Actor(actor, reason), subject=of_event(event_id),
        before=None if before is None else {"background_percent": before}, after={"background_percent": percent},
    )  # fmt: skip
    return True
