"""What was done for an order and why, command by command; and having one run again.

To run a command again is to make its order due now: the cashier decides from rows what follows, as it always does. The
new run is a command of its own, so that what came of the first stays told.
"""

from typing import Any

from sqlalchemy import ColumnElement, Row, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.audit import audit_log
from services.orders.order.leases import NOW
from services.orders.problems import NotReplayable, UnknownCommand
from services.orders.tables import checkout_command, order, payment_attempt, refund
from shared.postgres.engine import AsyncConnection, AsyncEngine

RERUN = "rerun_of"


async def find(
    connection: AsyncConnection, *, status: str | None, reference: str | None, event_id: str | None, page: int,
    page_size: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Commands of all orders or of these, the newest first."""
    found = select(checkout_command, order.c.event_id)
    found = found.join(order, order.c.reference == checkout_command.c.reference)
    found = found.where(*_wanted(status, reference, event_id))
    newest = found.order_by(checkout_command.c.created_at.desc(), checkout_command.c.command_id)
    rows = await connection.execute(newest.limit(page_size).offset((page - 1) * page_size))
    return [dict(row) for row in rows.mappings()]


def _wanted(status: str | None, reference: str | None, event_id: str | None) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = []
    if status is not None:
        wanted.append(checkout_command.c.status == status)
    if status == "failed":
        wanted.append(checkout_command.c.error_message.is_not(None))  # always so, and there is an index of those
    if reference is not None:
        wanted.append(checkout_command.c.reference == reference)
    if event_id is not None:
        wanted.append(order.c.event_id == event_id)
    return wanted


async def rerun(db: AsyncEngine, command_id: str, *, actor: str, reason: str) -> dict[str, Any]:
    """The new command. Asked for again while it has not ended, it is the same one. Raises `UnknownCommand`,
    `NotReplayable`.
    """
    async with db.begin() as connection:
        asked = await _read(connection, command_id)
        await _require_something_to_do(connection, asked)
        again = await connection.scalar(_open_run(asked)) or await _record(connection, asked, actor, reason)
        await connection.execute(
            update(order)
            .where(order.c.reference == asked.reference)
            .values(wake_count=order.c.wake_count + 1, due_at=NOW, sync_requested=True)
        )
        [found] = [dict(row) for row in (await connection.execute(_one(again))).mappings()]
    return found


async def _read(connection: AsyncConnection, command_id: str) -> Row[Any]:
    row = (await connection.execute(_one(command_id))).first()
    if row is None:
        raise UnknownCommand
    return row


def _one(command_id: str) -> Any:
    one = select(checkout_command, order.c.event_id).join(order, order.c.reference == checkout_command.c.reference)
    return one.where(checkout_command.c.command_id == command_id)


async def _require_something_to_do(connection: AsyncConnection, asked: Row[Any]) -> None:
    """The order's row is locked, so that no cashier writes in between."""
    mine = order.c.reference == asked.reference
    status = await connection.scalar(select(order.c.status).where(mine).with_for_update())
    if asked.status == "completed":
        raise NotReplayable("This command was carried out.", command_status=asked.status)
    if asked.command_type == "cancel" and status != "pending":
        raise NotReplayable(f"An order that is {status} cannot be cancelled.", order_status=status)
    if asked.command_type == "refund":
        if not await _refunds_under_way(connection, asked.reference):
            raise NotReplayable("No refund of this order is under way; one refused is decided in review.",
                                 order_status=status)  # fmt: skip
        return
    attempts = select(func.count()).where(payment_attempt.c.reference == asked.reference)
    if status != "pending" and not await connection.scalar(attempts):
        raise NotReplayable("The order has ended, and no provider was ever asked to charge it.", order_status=status)


async def _refunds_under_way(connection: AsyncConnection, reference: str) -> int:
    """What a provider refused for good waits for a person's decision about the order."""
    mine = (refund.c.reference == reference) & (refund.c.status == "requested")
    return await connection.scalar(select(func.count()).where(mine)) or 0


def _open_run(asked: Row[Any]) -> Any:
    runs = select(checkout_command.c.command_id).where(checkout_command.c.reference == asked.reference)
    runs = runs.where(checkout_command.c.processed_at.is_(None), checkout_command.c.command_type == asked.command_type)
    return runs.where(checkout_command.c.payload.has_key(RERUN)).limit(1)


async def _record(connection: AsyncConnection, asked: Row[Any], actor: str, reason: str) -> str:
    new = insert(checkout_command).values(
        reference=asked.reference, command_type=asked.command_type, caused_by=f"operator:{actor}", status="processing",
        payload={RERUN: asked.command_id, "reason": reason},
    )  # fmt: skip
    command_id = str(await connection.scalar(new.returning(checkout_command.c.command_id)))
    await audit_log.write(
        connection, actor=actor, action="rerun", subject=f"order:{asked.reference}", reason=reason,
        before={"command_id": asked.command_id, "status": asked.status, "error": asked.error_message},
        after={"command_id": command_id, "status": "processing"},
    )  # fmt: skip
    return command_id
