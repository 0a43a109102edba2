"""How fans flow through the line: joined, called, claimed, how their places ended, how long they waited.

Counted in the database; places before the last reset are not.
"""

from fastapi import APIRouter

from features.reports.reading import ServiceCounts, TimeStepsQuery
from features.reports.schemas import LineHistory
from services.queue.state import StateDep
from shared.contracts.admin.queue import LineFlow
from shared.postgres.engine import statement
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/queue/events/{event_id}/flow", tags=["admin"])
_FLOW, _HISTORY = statement(__package__, "flow"), statement(__package__, "flow_history")


@router.get("", operation_id="read_queue_flow", summary="Get the flow of fans through the line")
async def get_flow(event_id: EventIdPath, _operator: Viewer, state: StateDep, counts: ServiceCounts) -> LineFlow:
    """Counted in the database since the last reset, at most once a second for all who ask."""
    which = {"event_id": event_id, "epoch": (await state.rooms.get(event_id)).epoch}
    return LineFlow.model_validate({**which, **await counts.one(state.rooms.db, _FLOW, **which)})


@router.get("/history", operation_id="read_queue_flow_history", summary="Get joins, calls and waits by time")
async def get_flow_history(
    event_id: EventIdPath, _operator: Viewer, state: StateDep, counts: ServiceCounts, steps: TimeStepsQuery
) -> LineHistory:
    which = {"event_id": event_id, "epoch": (await state.rooms.get(event_id)).epoch, **steps._asdict()}
    return LineHistory.model_validate(await counts.one(state.rooms.db, _HISTORY, **which))
