"""Searches orders and reads the timeline of one, for support staff."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.view import order_view
from services.orders.refunds.review import allowed_decisions
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime, rfc3339

_SEARCH = statement(__package__, "search")
_TIMELINE = statement(__package__, "timeline")
TIMELINE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The filters of a search; `after` is the last reference of the page before."""

    q: str | None
    event_id: str | None
    status: str | None
    since: datetime | None
    until: datetime | None
    after: str | None
    page_size: int


async def find(db: AsyncEngine, search: Search, *, providers: Collection[str]) -> dict[str, Any]:
    """One page, newest first; `next_after` starts the next page, or is None."""
    bound = {
        "q": search.q, "event_id": search.event_id, "status": search.status, "since": search.since,
        "until": search.until, "after": search.after, "providers": list(providers), "count_max": search.page_size + 1,
    }  # fmt: skip
    async with db.connect() as connection:
        references = list((await connection.execute(_SEARCH, bound)).scalars())
    shown = references[: search.page_size]
    orders = await leases.read_many(db, shown)
    more = shown[-1] if len(references) > len(shown) else None
    return {"orders": [admin_view(orders[r]) for r in shown if r in orders], "next_after": more}


def admin_view(order: Order) -> dict[str, Any]:
    """The public view, with the end reason and the decisions allowed in review."""
    return {**order_view(order), "end_reason": order.end_reason, "may_be_resolved_by": sorted(allowed_decisions(order))}


async def timeline(db: AsyncEngine, order: Order) -> dict[str, Any]:
    """The order and its rows, oldest first."""
    bound = {"reference": order.reference, "count_max": TIMELINE_MAX}
    async with db.connect() as connection:
        rows = list(await connection.execute(_TIMELINE, bound))
    entries = [{"at": rfc3339(from_datetime(row.at)), "kind": row.kind, **row.what} for row in rows]
    return {"order": admin_view(order), "timeline": entries, "complete": len(rows) < TIMELINE_MAX}
