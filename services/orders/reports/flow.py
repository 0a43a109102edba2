"""How fans flow through orders: ordered, confirmed, declined, what waits; counted in the database.

However many operators watch, the orders are counted at most once a second, and for at most a tenth of the time.
"""

from typing import Any, TypeVar

from pydantic import BaseModel

from shared.concurrency.coalescing import CachedReads
from shared.contracts.admin.order_reports import OrdersFlow, OrdersHistory
from shared.contracts.fields import TimeSteps
from shared.postgres.engine import AsyncEngine, statement

Report = TypeVar("Report", bound=BaseModel)
_FLOW, _HISTORY = statement(__package__, "flow"), statement(__package__, "flow_history")
RECENT_S, REASONS_MAX = 300, 20


class OrdersFlows:
    """The flows of all events. A process that was silent for `takeover_s` works on nothing."""

    def __init__(self, db: AsyncEngine, takeover_s: float) -> None:
        self._db = db
        self._limits = {"takeover_s": takeover_s, "seconds": RECENT_S, "reasons_max": REASONS_MAX}
        self._reads: CachedReads[Any] = CachedReads.for_reports()
        self.close = self._reads.close  # cancels the statements under way

    async def flow(self, event_id: str) -> OrdersFlow:
        """Counts of the whole sale so far; an unknown event has no orders."""
        return await self._read(event_id, OrdersFlow, _FLOW, {"event_id": event_id, **self._limits})

    async def history(self, event_id: str, steps: TimeSteps) -> OrdersHistory:
        """Counts by step of time, and sums of the whole sale."""
        bound = {"event_id": event_id, **steps.bound()}
        return await self._read(f"{event_id}/{steps}", OrdersHistory, _HISTORY, bound)

    async def _read(self, key: str, report: type[Report], query: Any, bound: dict[str, Any]) -> Report:
        async def read() -> Report:
            async with self._db.connect() as connection:
                return report.model_validate(dict((await connection.execute(query, bound)).mappings().one()))

        found: Report = await self._reads.get(key, read)
        return found
