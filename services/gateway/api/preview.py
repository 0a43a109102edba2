"""What a fan at a position of the line is told: for operators, and for fans who have not joined yet."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from services.gateway.api.queue import waiting_status
from services.gateway.api.schemas import StatusAnswer
from services.gateway.state import State
from shared.runtime.clock import now_ms
from shared.security.tokens import QueueToken
from shared.web.request import EventIdPath

router = APIRouter(tags=["line"])
POSITION_MAX, LANES_MAX = 1_000_000_000, 100


@router.get(
    "/events/{event_id}/queue/preview", summary="See what a fan at a position is told",
    response_model_exclude_unset=True,
)  # fmt: skip
async def preview(
    event_id: EventIdPath, request: Request, response: Response,
    position: Annotated[int, Query(ge=1, le=POSITION_MAX, description="Places between the fan and the head.")],
    lane: Annotated[int, Query(ge=0, le=LANES_MAX)] = 0,
) -> StatusAnswer:  # fmt: skip
    """The status of a place there, as its fan gets it who joined now: the position, the wait as a range and its reason.
    Nobody needs to be there, and it is no heartbeat.
    """
    state: State = request.app.state.deps
    response.headers["cache-control"] = "public, max-age=1"
    line = await state.line_cache.line(event_id)
    place = line.heads.get(lane, 0) + position
    token = QueueToken(event_id, line.epoch, lane, place, holder="", issued_at_s=now_ms() // 1000)
    body = waiting_status(line, token, position)
    if body.get("rank") is not None:
        body |= {"rank": place, "position_in_queue": position}  # after a draw the head counts ranks
    return StatusAnswer.model_validate(body)
