"""How fans flow through orders: ordered, confirmed, declined, what waits; counted in the database."""

from fastapi import APIRouter

from features.reports.reading import ServiceCounts, TimeStepsQuery
from features.reports.schemas import OrdersHistory
from services.orders.state import OrdersState
from shared.contracts.admin.orders import OrdersFlow
from shared.postgres.engine import statement
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/orders/events/{event_id}/flow", tags=["admin"])
FLOW, _HISTORY = statement(__package__, "flow"), statement(__package__, "flow_history")
LIMITS = {"seconds": 300, "reasons_max": 20}


@router.get("", operation_id="read_order_flow", summary="Get the flow of fans through orders")
async def get_flow(event_id: EventIdPath, state: OrdersState, _operator: Viewer, counts: ServiceCounts) -> OrdersFlow:
    """Counted in the database, at most once a second for all who ask."""
    takeover_s = state.tuning.takeover_s  # a process that was silent for so long works on nothing
    row = await counts.one(state.store.db, FLOW, event_id=event_id, takeover_s=takeover_s, **LIMITS)
    return OrdersFlow.model_validate(row)


@router.get(
    "/history", operation_id="read_order_flow_history", summary="Get orders by time, tickets by section and money"
)
async def get_flow_history(
    event_id: EventIdPath, state: OrdersState, _operator: Viewer, counts: ServiceCounts, steps: TimeStepsQuery
) -> OrdersHistory:
    row = await counts.one(state.store.db, _HISTORY, event_id=event_id, **steps._asdict())
    return OrdersHistory.model_validate(row)
