"""The stream of one event: everything that a screen shows, as it changes."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from services.console.state import StateDep
from services.console.streams import messages
from services.console.streams.event_stream import EventStream
from shared.contracts.admin.console import STREAM_PATH
from shared.security.auth import Viewer, signed_in
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])


@router.get(
    STREAM_PATH, summary="Stream the figures of an event", response_class=Response,
    responses={200: {"description": "Server-sent events", "content": {"text/event-stream": {}}}},
)  # fmt: skip
async def stream(event_id: EventIdPath, request: Request, _operator: Viewer, state: StateDep) -> Response:
    """First `snapshot`, also after a reconnect. Then `vitals` each second, `alarms` and `processes` when they change,
    `change` for each change by an operator, `approvals` when somebody asks for a second person or one decides. It ends
    with the session.
    """
    gatherer = await state.gathering.watched(event_id)
    return EventStream(
        gatherer.watchers, lambda: messages.snapshot(gatherer.snapshot()),
        heartbeat_s=state.tuning.heartbeat_s, ends_s=signed_in(request).expires_at_s,
    )  # fmt: skip
