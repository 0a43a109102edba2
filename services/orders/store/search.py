"""Searches orders and reads the timeline of one, for support staff."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime

from services.orders.model.decisions import allowed_decisions
from services.orders.model.order import Order
from services.orders.model.view import order_view
from services.orders.store.store import read_many
from shared.contracts.admin.orders import AdminOrder, OrderPage, Timeline, TimelineEntry
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


def admin_view(order: Order) -> AdminOrder:
    """The public view, with the end reason and the decisions allowed in review."""
    decisions = sorted(allowed_decisions(order))
    return AdminOrder.model_validate(
        {**order_view(order), "end_reason": order.end_reason, "may_be_resolved_by": decisions}
    )


async def timeline(db: AsyncEngine, order: Order) -> Timeline:
    """The order and its rows, oldest first."""
    bound = {"reference": order.reference, "count_max": TIMELINE_MAX}
    async with db.connect() as connection:
        rows = list(await connection.execute(_TIMELINE, bound))
    entries = [TimelineEntry(at=rfc3339(from_datetime(row.at)), kind=row.kind, **row.what) for row in rows]
    return Timeline(order=admin_view(order), timeline=entries, complete=len(rows) < TIMELINE_MAX)
