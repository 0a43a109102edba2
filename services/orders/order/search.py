"""Finding orders, and everything that happened to one, for the people who answer the phone."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.view import order_view
from services.orders.refunds.review import allowed_decisions
from services.orders.state import State
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime, rfc3339

_SEARCH = statement(__package__, "search")
_TIMELINE = statement(__package__, "timeline")
TIMELINE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for; `after` is the reference that was shown last."""

    q: str | None
    event_id: str | None
    status: str | None
    since: datetime | None
    until: datetime | None
    after: str | None
    page_size: int


async def find(state: State, asked: Search) -> dict[str, Any]:
    """One page, newest first; `next_after` is where the next one begins, if there is one."""
    bound = {
        "q": asked.q, "event_id": asked.event_id, "status": asked.status, "since": asked.since, "until": asked.until,
        "after": asked.after, "providers": list(state.providers), "count_max": asked.page_size + 1,
    }  # fmt: skip
    async with state.book.db.connect() as connection:
        references = list((await connection.execute(_SEARCH, bound)).scalars())
    shown = references[: asked.page_size]
    orders = await leases.read_many(state.book.db, shown)
    more = shown[-1] if len(references) > len(shown) else None
    return {"orders": [admin_view(orders[r]) for r in shown if r in orders], "next_after": more}


def admin_view(seen: Order) -> dict[str, Any]:
    """As its owner sees it, with why it ended, and what may be decided about it."""
    return {**order_view(seen), "end_reason": seen.end_reason, "may_be_resolved_by": sorted(allowed_decisions(seen))}


async def timeline(db: AsyncEngine, seen: Order) -> dict[str, Any]:
    """The order, and its rows in the order of time."""
    bound = {"reference": seen.reference, "count_max": TIMELINE_MAX}
    async with db.connect() as connection:
        rows = list(await connection.execute(_TIMELINE, bound))
    happened = [{"at": rfc3339(from_datetime(row.at)), "kind": row.kind, **row.what} for row in rows]
    return {"order": admin_view(seen), "timeline": happened, "complete": len(rows) < TIMELINE_MAX}
