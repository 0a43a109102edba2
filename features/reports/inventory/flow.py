"""How fans flow through holds: who held, how holds ended, what each section has left; counted in the database."""

from typing import get_args

from fastapi import APIRouter

from features.reports.reading import ServiceCounts, TimeStepsQuery
from features.reports.schemas import HoldsHistory
from services.inventory.state import StateDep
from services.inventory.store.traits import count_traits
from shared.contracts.admin.inventory import HoldsFlow, PlacesByTrait
from shared.contracts.frames import ReservationState
from shared.postgres.engine import statement
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/inventory/events/{event_id}/flow", tags=["admin"])
_FLOW, _HISTORY = statement(__package__, "flow"), statement(__package__, "flow_history")


@router.get("", operation_id="read_inventory_flow", summary="Get the flow of fans through holds")
async def get_flow(_operator: Viewer, state: StateDep, event_id: EventIdPath, counts: ServiceCounts) -> HoldsFlow:
    """Counted in the database, at most once a second for all who ask."""
    which = {"event_id": state.catalogue.layout(event_id).event_id}
    row = await counts.one(state.autocommit_db, _FLOW, **which)
    by_status = {status: row[status] for status in get_args(ReservationState)}
    return HoldsFlow.model_validate({**which, **row, "by_status": by_status})


@router.get(
    "/history", operation_id="read_inventory_flow_history", summary="Get holds by time, and why places were released"
)
async def get_flow_history(
    _operator: Viewer, state: StateDep, event_id: EventIdPath, counts: ServiceCounts, steps: TimeStepsQuery
) -> HoldsHistory:
    which = {"event_id": state.catalogue.layout(event_id).event_id, **steps._asdict()}
    return HoldsHistory.model_validate(await counts.one(state.autocommit_db, _HISTORY, **which))


@router.get("/traits", operation_id="read_places_by_trait", summary="Get places by trait: total, available, held, sold")
async def get_traits(_operator: Viewer, state: StateDep, event_id: EventIdPath, counts: ServiceCounts) -> PlacesByTrait:
    """Wheelchair places, companion places and others that the event file names."""
    which = state.catalogue.layout(event_id).event_id

    async def make() -> PlacesByTrait:
        async with state.autocommit_db.connect() as connection:
            return await count_traits(connection, which)

    return await counts.get(f"traits {which}", make)
