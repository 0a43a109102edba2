"""Searches orders and reads the timeline of one, for support staff; and finds the orders of a customer."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, literal_column, or_, select

from services.orders.model.order import Order
from services.orders.model.references import Customer, owner_id
from services.orders.model.view import admin_view
from services.orders.store.store import read_many
from services.orders.tables import HOLDER_SQL, SIGNED_IN_SQL, order
from shared.contracts.admin.orders import OrderPage, Timeline, TimelineEntry
from shared.postgres.engine import AsyncEngine, statement
from shared.postgres.pages import PageRequest
from shared.runtime.clock import from_datetime, rfc3339

_SEARCH = statement(__package__, "search")
_TIMELINE = statement(__package__, "timeline")
TIMELINE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The filters of a search."""

    q: str | None
    event_id: str | None
    status: str | None
    since: datetime | None
    until: datetime | None
    mail_failed: bool = False


async def find(db: AsyncEngine, search: Search, page: PageRequest[str], *, providers: Collection[str]) -> OrderPage:
    """Orders that match, newest first."""
    bound = {**asdict(search), "providers": list(providers), "before": page.cursor, "count_max": page.size + 1}
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
