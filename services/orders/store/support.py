"""What is looked up about orders: a search, the timeline of one, a customer's orders; and the command log, which tells
what was done for an order, why, and with which result.

A replay of a command makes the order due now: its process decides from the rows what follows, as always. It is a
command of its own, so that the result of the first stays visible.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, literal_column, or_, select

from services.orders.model.order import REPLAY_OF, Customer, Order, command_id, owner_id, place_of
from services.orders.model.order import JournalEntry as Entry
from services.orders.model.update import OrderUpdate
from services.orders.model.view import admin_view
from services.orders.problems import NotReplayable, UnknownCommand
from services.orders.store.store import OrderStore, read_many
from services.orders.tables import HOLDER_SQL, SIGNED_IN_SQL, audit_log, order
from shared.audit_log import Actor
from shared.contracts.admin.orders import Command, CommandPage, OrderPage, Timeline, TimelineEntry
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.postgres.pages import PageRequest
from shared.runtime.clock import from_datetime, rfc3339

_SEARCH = statement(__package__, "search")
_TIMELINE = statement(__package__, "timeline")
_LIST = statement(__package__, "list_commands")
_READ = statement(__package__, "read_command")
TIMELINE_MAX = 1000


async def find(
    db: AsyncEngine, page: PageRequest[str], *, providers: Collection[str], q: str | None, event_id: str | None,
    status: str | None, since: datetime | None, until: datetime | None, mail_failed: bool,
) -> OrderPage:  # fmt: skip
    """Orders that match all of these, newest first."""
    bound = {
        "q": q, "event_id": event_id, "status": status, "since": since, "until": until, "mail_failed": mail_failed,
        "providers": list(providers), "before": page.cursor, "count_max": page.size + 1,
    }  # fmt: skip
    async with db.connect() as connection:
        references = list((await connection.execute(_SEARCH, bound)).scalars())
    shown, following = page.cut(references, str)
    orders = await read_many(db, shown)
    return OrderPage(orders=[admin_view(orders[r]) for r in shown if r in orders], next=following)


async def timeline(db: AsyncEngine, order: Order) -> Timeline:
    """The order and its rows, oldest first."""
    bound = {"reference": order.reference, "count_max": TIMELINE_MAX}
    async with db.connect() as connection:
        rows = list(await connection.execute(_TIMELINE, bound))
    entries = [TimelineEntry(at=rfc3339(from_datetime(row.at)), kind=row.kind, **row.what) for row in rows]
    return Timeline(order=admin_view(order), timeline=entries, complete=len(rows) < TIMELINE_MAX)


async def references_of(
    db: AsyncEngine, customers: Sequence[Customer], opened: Sequence[str] = (), *, page: int, page_size: int
) -> list[str]:
    """References of these customers' orders and of the `opened` ones, newest first."""
    newest = select(order.c.reference).where(or_(order.c.reference.in_(opened), *map(_ordered_by, customers)))
    newest = newest.order_by(order.c.created_at.desc(), order.c.reference)
    async with db.connect() as connection:
        return list(await connection.scalars(newest.limit(page_size).offset((page - 1) * page_size)))


def _ordered_by(customer: Customer) -> ColumnElement[bool]:
    if customer.event_id is not None:
        return order.c.owner_id == owner_id(customer.event_id, customer.holder)
    return and_(literal_column(SIGNED_IN_SQL), literal_column(HOLDER_SQL) == customer.holder)


async def list_commands(
    db: AsyncEngine, page: PageRequest[str], *, status: str | None, reference: str | None, event_id: str | None
) -> CommandPage:
    """Commands of all orders, or of those with this status, reference and event: the newest order first, and of each
    its newest command.
    """
    before, place = place_of(page.cursor) if page.cursor else (None, 0)
    bound = {"status": status, "reference": reference, "event_id": event_id, "before": before, "place": place}
    async with db.connect() as connection:
        rows: Sequence[Row[Any]] = (await connection.execute(_LIST, bound | {"count_max": page.size + 1})).all()
    shown, following = page.cut(rows, lambda row: str(row.command_id))
    return CommandPage(commands=[_shown(row) for row in shown], next=following)


async def replay(store: OrderStore, wanted: str, *, actor: str, reason: str) -> Command:
    """Replays a command and returns the new one; while that is open, the same one again. Raises `UnknownCommand`,
    `NotReplayable`.
    """
    reference, place = place_of(wanted)
    await _read(store.db, reference, place)
    replays: list[int] = []

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        command = order.journal[place - 1]
        _require_replayable(command, order)
        update = OrderUpdate(order, bumps_version=False)
        open_one = next((n for n, one in enumerate(order.journal, start=1) if _is_open_replay(one, command.type)), None)
        if open_one is None:
            payload = {REPLAY_OF: wanted, "reason": reason}
            update.begin_command(command.type, caused_by=f"operator:{actor}", payload=payload)
            open_one = len(update.now("journal"))
            await audit_log.write(
                connection, "rerun", Actor(actor, reason), subject=f"order:{reference}",
                before={"command_id": wanted, "status": command.status, "error": command.error},
                after={"command_id": command_id(reference, open_one), "status": "processing"},
            )  # fmt: skip
        replays.append(open_one)
        return update

    await store.change(reference, decide, sync=True)
    return _shown(await _read(store.db, reference, replays[-1]))


async def _read(db: AsyncEngine, reference: str, place: int) -> Row[Any]:
    async with db.connect() as connection:
        row = (await connection.execute(_READ, {"reference": reference, "place": place})).first()
    if row is None:
        raise UnknownCommand
    return row


def _shown(row: Row[Any]) -> Command:
    return Command.model_validate({name: value for name, value in row._asdict().items() if name != "place"})


def _is_open_replay(command: Entry, kind: str) -> bool:
    return command.is_open and command.type == kind and REPLAY_OF in (command.payload or {})


def _require_replayable(command: Entry, order: Order) -> None:
    """Raises `NotReplayable`."""
    if command.status == "completed":
        raise NotReplayable("This command has completed.", command_status=command.status)
    if command.type == "cancel" and order.status != "pending":
        raise NotReplayable(f"An order that is {order.status} cannot be cancelled.", order_status=order.status)
    if command.type == "refund":
        if not order.refunds:
            detail = "No refund of this order is in progress; one that was rejected is decided in review."
            raise NotReplayable(detail, order_status=order.status)
        return
    if order.status != "pending" and not order.attempts:
        raise NotReplayable(
            "The order has ended, and no provider was ever asked to charge it.", order_status=order.status
        )
