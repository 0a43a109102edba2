"""The endpoints organisers gave us, and what was sent to each: adding, removing, looking, sending again."""

import secrets
from typing import Any

from sqlalchemy import RowMapping, delete, func, insert, select, update

from services.orders.audit import audit_log
from services.orders.problems import TooManyWebhooks, UnknownDelivery, UnknownWebhook
from services.orders.webhooks.schemas import NewHook
from services.orders.webhooks.sender import new_secret
from services.orders.webhooks.tables import hook, hook_delivery
from shared.postgres.engine import AsyncConnection, AsyncEngine

HOOKS_MAX = 100
SHOWN = [column for column in hook.c if column.name != "secret"]
DELIVERY_SHOWN = [column for column in hook_delivery.c if column.name not in ("body", "lease", "lease_until")]


async def add(db: AsyncEngine, asked: NewHook, *, actor: str) -> dict[str, Any]:
    """A new endpoint with its secret, which is shown this once. Raises `TooManyWebhooks`."""
    new = {
        "hook_id": f"hook_{secrets.token_hex(8)}", "url": asked.url, "secret": new_secret(),
        "kinds": sorted(set(asked.kinds)), "event_id": asked.event_id, "description": asked.description,
    }  # fmt: skip
    async with db.begin() as connection:
        await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("hooks", 0))))
        if (await connection.scalar(select(func.count()).select_from(hook)) or 0) >= HOOKS_MAX:
            raise TooManyWebhooks(f"There are {HOOKS_MAX} endpoints; remove one first.")
        row = (await connection.execute(insert(hook).values(new).returning(*hook.c))).mappings().one()
        await _note(connection, "hook-add", row["hook_id"], actor, asked.reason, after=_told(row))
    return dict(row)


async def remove(db: AsyncEngine, hook_id: str, *, actor: str, reason: str) -> None:
    """Nothing more is sent to it; what was sent is forgotten within the hour. Raises `UnknownWebhook`."""
    async with db.begin() as connection:
        gone = await connection.execute(delete(hook).where(hook.c.hook_id == hook_id).returning(*hook.c))
        row = gone.mappings().one_or_none()
        if row is None:
            raise UnknownWebhook
        await _note(connection, "hook-remove", hook_id, actor, reason, before=_told(row))


async def enable(db: AsyncEngine, hook_id: str, *, actor: str, reason: str) -> dict[str, Any]:
    """A disabled one again; what it missed while disabled was never owed, what was owed before goes on."""
    async with db.begin() as connection:
        locked = await connection.execute(select(hook).where(hook.c.hook_id == hook_id).with_for_update())
        before = locked.mappings().one_or_none()
        if before is None:
            raise UnknownWebhook
        values = {"disabled_at": None, "disabled_reason": None, "failing_since": None}
        changed = await connection.execute(
            update(hook).where(hook.c.hook_id == hook_id).values(values).returning(*SHOWN)
        )
        row = changed.mappings().one()
        if before["disabled_at"] is not None:
            await _note(connection, "hook-enable", hook_id, actor, reason, before=_told(before), after=_told(row))
    return dict(row)


async def read_all(connection: AsyncConnection) -> list[dict[str, Any]]:
    """Every endpoint, without its secret."""
    rows = await connection.execute(select(*SHOWN).order_by(hook.c.created_at, hook.c.hook_id))
    return [dict(row) for row in rows.mappings()]


async def deliveries(
    connection: AsyncConnection, hook_id: str, *, status: str | None, page: int, page_size: int
) -> list[dict[str, Any]]:
    """What was owed to an endpoint and what came of it, the newest first. Raises `UnknownWebhook`."""
    if await connection.scalar(select(hook.c.hook_id).where(hook.c.hook_id == hook_id)) is None:
        raise UnknownWebhook
    found = select(*DELIVERY_SHOWN).where(hook_delivery.c.hook_id == hook_id).order_by(hook_delivery.c.id.desc())
    if status is not None:
        found = found.where(hook_delivery.c.status == status)
    rows = await connection.execute(found.limit(page_size).offset((page - 1) * page_size))
    return [dict(row) for row in rows.mappings()]


async def resend(db: AsyncEngine, delivery_id: int, *, actor: str, reason: str) -> dict[str, Any]:
    """Makes a delivery due now, with all its attempts before it; its id stays. Raises `UnknownDelivery`."""
    again = update(hook_delivery).where(
        hook_delivery.c.id == delivery_id, hook_delivery.c.hook_id.in_(select(hook.c.hook_id))
    )
    again = again.values(status="pending", attempts=0, due_at=func.now(), delivered_at=None, error=None)
    async with db.begin() as connection:
        row = (await connection.execute(again.returning(*DELIVERY_SHOWN))).mappings().one_or_none()
        if row is None:
            raise UnknownDelivery
        after = {"delivery": delivery_id, "message_id": row["message_id"]}
        await _note(connection, "hook-resend", row["hook_id"], actor, reason, after=after)
    return dict(row)


async def _note(
    connection: AsyncConnection, action: str, hook_id: str, actor: str, reason: str,
    before: dict[str, Any] | None = None, after: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    subject = f"hook:{hook_id}"
    await audit_log.write(
        connection, actor=actor, action=action, subject=subject, reason=reason, before=before, after=after
    )  # fmt: skip


def _told(row: RowMapping) -> dict[str, Any]:
    told = {name: row[name] for name in ("url", "kinds", "event_id", "description")}
    return told | {"disabled": row["disabled_at"] is not None, "disabled_reason": row["disabled_reason"]}
