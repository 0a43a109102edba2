"""How fans flow through orders: ordered, confirmed, declined, what waits; counted in the database.

However many operators watch, the orders are counted at most once a second, and for at most a tenth of the time.
"""

from functools import partial
from typing import Any

from services.orders.model.states import ORDER_TRANSITIONS
from shared.concurrency.cached_reads import CachedReads
from shared.contracts.admin.order_reports import OrdersFlow, OrdersHistory, RecentTickets
from shared.contracts.fields import TimeSteps
from shared.postgres.engine import AsyncEngine, snapshot, statement

_FLOW, _RECENT, _DECLINES = (statement(__package__, name) for name in ("flow", "recent_tickets", "declines"))
_HISTORY = statement(__package__, "flow_history")
_WHOLE_SALE = {
    "sections": statement(__package__, "section_sales"),
    "money": statement(__package__, "event_money"),
    "unsold": statement(__package__, "unsold_orders"),
}
RECENT_S, REASONS_MAX = 300, 20


class OrdersFlows:
    """The flows of all events."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._flows: CachedReads[OrdersFlow] = CachedReads.for_reports()
        self._histories: CachedReads[OrdersHistory] = CachedReads.for_reports()

    async def flow(self, event_id: str) -> OrdersFlow:
        """Counts of the whole sale so far; an unknown event has no orders."""
        return await self._flows.get(event_id, partial(self._read_flow, event_id))

    async def history(self, event_id: str, steps: TimeSteps) -> OrdersHistory:
        """Counts by step of time, and sums of the whole sale."""
        return await self._histories.get(f"{event_id}/{steps}", partial(self._read_history, event_id, steps))

    async def _read_flow(self, event_id: str) -> OrdersFlow:
        which = {"event_id": event_id}
        async with snapshot(self._db) as connection:
            row = dict((await connection.execute(_FLOW, which)).mappings().one())
            at = row.pop("at")
            recent = (await connection.execute(_RECENT, {**which, "until": at, "seconds": RECENT_S})).all()
            declines = (await connection.execute(_DECLINES, {**which, "reasons_max": REASONS_MAX})).all()
        tickets = {one.second: one.tickets for one in recent}
        return OrdersFlow(
            event_id=event_id, at=at, by_status={status: row.pop(status) for status in ORDER_TRANSITIONS},
            declines={one.reason: one.declines for one in declines},
            recent=RecentTickets(
                tickets=[tickets.get(second, 0) for second in reversed(range(RECENT_S))],
                orders=sum(one.orders for one in recent),
            ),
            **row,
        )  # fmt: skip

    async def _read_history(self, event_id: str, steps: TimeSteps) -> OrdersHistory:
        found: dict[str, Any] = {}
        async with snapshot(self._db) as connection:
            rows = await connection.execute(_HISTORY, {"event_id": event_id, **steps.bound()})
            found["steps"] = [dict(row) for row in rows.mappings()]
            for name, query in _WHOLE_SALE.items():
                rows = await connection.execute(query, {"event_id": event_id})
                found[name] = [dict(row) for row in rows.mappings()]
        return OrdersHistory.model_validate(found)

    async def close(self) -> None:
        """Cancels the statements under way."""
        await self._flows.close()
        await self._histories.close()
