"""Events and the past of their figures."""

from typing import Annotated

from fastapi import APIRouter, Query

from services.console.history.alarms import past_alarms
from services.console.history.figures import history_of, step_ms_of, thinned
from services.console.state import StateDep
from shared.contracts.admin.console import (
    LIST_EVENTS,
    READ_FAN_VIEW,
    READ_HISTORY,
    EventList,
    FanView,
    VitalsHistory,
)
from shared.runtime.clock import now_ms
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])
HOUR_MS, AT_MAX_MS, STEP_MAX_S = 3_600_000, 2**53, 86_400
POSITION_MAX, LANES_MAX = 1_000_000_000, 100
At = Annotated[int | None, Query(ge=0, le=AT_MAX_MS)]


@router.get(LIST_EVENTS.path, summary="List the events")
async def list_events(_operator: Viewer, state: StateDep) -> EventList:
    return EventList(events=await state.gathering.overviews())


@router.get(READ_FAN_VIEW.path, summary="See what a fan at a position is told")
async def read_fan_view(
    event_id: EventIdPath, _operator: Viewer, state: StateDep,
    position: Annotated[int, Query(ge=1, le=POSITION_MAX)], lane: Annotated[int, Query(ge=0, le=LANES_MAX)] = 0,
) -> FanView:  # fmt: skip
    return await state.gathering.fan_view(event_id, position=position, lane=lane)


@router.get(READ_HISTORY.path, summary="Get the figures of the past")
async def read_history(
    event_id: EventIdPath, _operator: Viewer, state: StateDep, from_ms: At = None, to_ms: At = None,
    step_s: Annotated[int, Query(ge=1, le=STEP_MAX_S)] = 1,
) -> VitalsHistory:  # fmt: skip
    """The last hour a second as far as it was watched, what was before in steps of ten seconds; at most 4,000 points,
    by default of the last hour. A longer step is taken if that would be more.
    """
    read_ms = now_ms()
    until_ms = read_ms if to_ms is None else to_ms
    since_ms = until_ms - HOUR_MS if from_ms is None else from_ms
    gatherer = state.gathering.known(event_id)
    recent = list(gatherer.ring.between(since_ms, until_ms)) if gatherer else []
    samples = await state.samples.between(event_id, since_ms, until_ms)
    earlier = (one.record for one in samples if not recent or one.record.at_ms < recent[0].at_ms)
    alarms = past_alarms(((one.at_10s, one.alarms) for one in samples), now_ms=read_ms)
    return history_of(thinned([*earlier, *recent], step_ms_of(since_ms, until_ms, step_s)), alarms)
