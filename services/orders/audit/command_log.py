"""The command log: what was done for an order, why, and with which result; and the replay of a command.

A replay makes the order due now: the processor decides from the rows what follows, as always. It is a command of its
own, so that the result of the first stays visible.
"""

from typing import Any

from sqlalchemy import ColumnElement, Row, exists, select, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.order.leases import WAKE
from services.orders.problems import NotReplayable, UnknownCommand
from services.orders.tables import audit_log, checkout_command, order, payment_attempt, refund
from shared.audit_log import Actor
from shared.contracts.admin.orders import Command, CommandPage
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.postgres.pages import PageRequest

REPLAY_OF = "rerun_of"
_COMMANDS = select(checkout_command, order.c.event_id).join(order, order.c.reference == checkout_command.c.reference)


async def list_commands(
    db: AsyncEngine, page: PageRequest[str], *, status: str | None, reference: str | None, event_id: str | None
) -> CommandPage:
    """Commands of all orders, or of those with this status, reference and event, newest first."""
    query = _COMMANDS.where(*_filters(status, reference, event_id))
    rows, following = await page.read(db, query, checkout_command.c.created_at, checkout_command.c.command_id)
    return CommandPage(commands=[Command.model_validate(dict(row)) for row in rows], next=following)


def _filters(status: str | None, reference: str | None, event_id: str | None) -> list[ColumnElement[bool]]:
    wanted = {checkout_command.c.status: status, checkout_command.c.reference: reference, order.c.event_id: event_id}
    filters = [column == value for column, value in wanted.items() if value is not None]
    if status == "failed":
        filters.append(checkout_command.c.error_message.is_not(None))  # implied, and makes the index usable
    return filters


async def replay(db: AsyncEngine, command_id: str, *, actor: str, reason: str) -> Command:
    """Replays a command and returns the new one; while that is open, the same one again. Raises `UnknownCommand`,
    `NotReplayable`.
    """
    async with db.begin() as connection:
        command = await _read(connection, command_id)
        await _require_replayable(connection, command)
        replay_id = await connection.scalar(_open_replay(command))
        replay_id = replay_id or await _write_replay(connection, command, actor, reason)
        await connection.execute(
            update(order).where(order.c.reference == command.reference).values(**WAKE, sync_requested=True)
        )
        return Command.model_validate((await _read(connection, replay_id))._asdict())


async def _read(connection: AsyncConnection, command_id: str) -> Row[Any]:
    row = (await connection.execute(_COMMANDS.where(checkout_command.c.command_id == command_id))).first()
    if row is None:
        raise UnknownCommand
    return row


async def _require_replayable(connection: AsyncConnection, command: Row[Any]) -> None:
    """Locks the order's row, so that no worker writes in between. Raises `NotReplayable`."""
    this_order = order.c.reference == command.reference
    status = await connection.scalar(select(order.c.status).where(this_order).with_for_update())
    if command.status == "completed":
        raise NotReplayable("This command has completed.", command_status=command.status)
    if command.command_type == "cancel" and status != "pending":
        raise NotReplayable(f"An order that is {status} cannot be cancelled.", order_status=status)
    if command.command_type == "refund":
        requested = exists().where(refund.c.reference == command.reference, refund.c.status == "requested")
        if not await connection.scalar(select(requested)):
            detail = "No refund of this order is in progress; one that was rejected is decided in review."
            raise NotReplayable(detail, order_status=status)
        return
    attempted = exists().where(payment_attempt.c.reference == command.reference)
    if status != "pending" and not await connection.scalar(select(attempted)):
        raise NotReplayable("The order has ended, and no provider was ever asked to charge it.", order_status=status)


def _open_replay(command: Row[Any]) -> Any:
    runs = select(checkout_command.c.command_id).where(checkout_command.c.reference == command.reference)
    runs = runs.where(checkout_command.c.command_type == command.command_type)
    open_ = checkout_command.c.processed_at.is_(None) & checkout_command.c.payload.has_key(REPLAY_OF)
    return runs.where(open_).limit(1)


async def _write_replay(connection: AsyncConnection, command: Row[Any], actor: str, reason: str) -> str:
    new = insert(checkout_command).values(
        reference=command.reference, command_type=command.command_type, status="processing",
        caused_by=f"operator:{actor}", payload={REPLAY_OF: command.command_id, "reason": reason},
    )  # fmt: skip
    command_id = str(await connection.scalar(new.returning(checkout_command.c.command_id)))
    await audit_log.write(
        connection, "rerun", Actor(actor, reason), subject=f"order:{command.reference}",
        before={"command_id": command.command_id, "status": command.status, "error": command.error_message},
        after={"command_id": command_id, "status": "processing"},
    )  # fmt: skip
    return command_id
