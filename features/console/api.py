"""The console's API: sign-in, events and their figures, rehearsals, the stream, approvals. And its pages:
one document for every screen, and assets whose names change with their content.

A page loads nothing from elsewhere, runs no inline script or style, and makes no markup from text (Trusted Types).
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathValue

from features.console import schemas, streams
from features.console.approvals import Approvals
from features.console.gathering.admin_api import AdminApi
from features.console.gathering.alarms import past_alarms
from features.console.gathering.history import Samples, history_of, step_ms_of, thinned
from features.console.gathering.registry import Gathering
from features.console.rehearsals import Rehearsals
from features.console.settings import Settings
from features.console.sign_in import Sessions, session_field
from features.console.tuning import Tuning
from shared.errors.problems import NotFound
from shared.routes import EVENT_ID
from shared.runtime.clock import now_ms
from shared.security.auth import AnAdmin, AnOperator, OperatorSession, Viewer, session_cookie, sign_session, signed_in
from shared.security.limits import client_address
from shared.security.tokens import HOST_ONLY, header_fields, require_own_origin
from shared.web.answers import Answer
from shared.web.built_files import IMMUTABLE, built_file
from shared.web.fast_routes import FastRoute
from shared.web.request import EventIdPath
from shared.web.request import Request as FastRequest

router = APIRouter(tags=["console"])
NO_STORE = "no-store"
HOUR_MS, AT_MAX_MS, STEP_MAX_S = 3_600_000, 2**53, 86_400
POSITION_MAX, LANES_MAX = 1_000_000_000, 100
At = Annotated[int | None, Query(ge=0, le=AT_MAX_MS)]
ApprovalIdPath = Annotated[str, PathValue(pattern="^[A-Za-z0-9_-]{1,32}$")]
PAGES = Path(__file__).parent / "pages" / "dist"
SECURITY = {
    "content-security-policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_event_id = re.compile(EVENT_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a handler may need, opened by the app: one object a process."""

    settings: Settings
    tuning: Tuning
    admin: AdminApi
    gathering: Gathering
    samples: Samples
    sessions: Sessions
    approvals: Approvals
    rehearsals: Rehearsals


def _state(request: Request) -> State:
    state: State = request.app.state.deps
    return state


StateDep = Annotated[State, Depends(_state)]


@router.post(
    "/console/session", operation_id="sign_in", summary="Sign in with a key or a one-time link",
    openapi_extra={"security": []},
    responses={401: {"description": "A wrong key, or a link that was used"}, 403: {"description": "A foreign page"}},
)  # fmt: skip
async def sign_in(request: Request, wanted: schemas.SignIn, state: StateDep, response: Response) -> schemas.Session:
    """Sets the cookie of a session of eight hours. After five wrong keys a minute and address the others are
    answered 429; the right one is accepted at any time.
    """
    if "origin" in request.headers:
        _require_own_page(request)
    address = client_address(request.scope, state.settings.trusted_proxies)
    session = await state.sessions.sign_in(wanted, address)
    text = sign_session(state.settings.service_keys, session)
    response.headers["set-cookie"] = session_field(request.scope, text)
    response.headers["cache-control"] = NO_STORE
    return _shown(session)


@router.get("/console/session", operation_id="read_session", summary="Get who is signed in")
async def read_session(request: Request, response: Response) -> schemas.Session:
    response.headers["cache-control"] = NO_STORE
    return _shown(signed_in(request))


@router.delete("/console/session", status_code=204, operation_id="sign_out", summary="Sign out in this browser")
async def sign_out(request: Request, response: Response) -> None:
    _require_own_page(request)
    response.headers["set-cookie"] = session_field(request.scope)


def _require_own_page(request: Request) -> None:
    fields = header_fields(request.scope)
    require_own_origin(fields, secure=session_cookie(fields).startswith(HOST_ONLY))


def _shown(session: OperatorSession) -> schemas.Session:
    name, role = session.operator
    return schemas.Session(name=name, role=role, expires_at=datetime.fromtimestamp(session.expires_at_s, UTC))


@router.get("/console/api/events", operation_id="list_events", summary="List the events")
async def list_events(_operator: Viewer, state: StateDep) -> schemas.EventList:
    return schemas.EventList(events=await state.gathering.overviews())


@router.get(
    "/console/api/events/{event_id}/fan-view",
    operation_id="read_fan_view",
    summary="See what a fan at a position is told",
)
async def read_fan_view(
    event_id: EventIdPath, _operator: Viewer, state: StateDep,
    position: Annotated[int, Query(ge=1, le=POSITION_MAX)], lane: Annotated[int, Query(ge=0, le=LANES_MAX)] = 0,
) -> schemas.FanView:  # fmt: skip
    view: schemas.FanView = await state.admin.read_preview(event_id, position=position, lane=lane)
    return view


@router.get("/console/api/events/{event_id}/vitals", operation_id="read_history", summary="Get the figures of the past")
async def read_history(
    event_id: EventIdPath, _operator: Viewer, state: StateDep, from_ms: At = None, to_ms: At = None,
    step_s: Annotated[int, Query(ge=1, le=STEP_MAX_S)] = 1,
) -> schemas.VitalsHistory:  # fmt: skip
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


@router.post(
    "/console/api/events/{event_id}/rehearsal",
    status_code=202,
    operation_id="start_rehearsal",
    summary="Start a rehearsal of an event",
)
async def start_rehearsal(
    request: Request, event_id: EventIdPath, _operator: AnAdmin, state: StateDep, wanted: schemas.RehearsalStart
) -> schemas.RehearsalView:
    """Sells a copy of the event to simulated fans. Refused with 409 while one runs, or if anything but the sandbox
    takes payments.
    """
    return await state.rehearsals.start(signed_in(request), event_id, wanted)


@router.get(
    "/console/api/events/{event_id}/rehearsal",
    operation_id="read_rehearsal",
    summary="Get the last rehearsal of an event",
)
async def read_rehearsal(event_id: EventIdPath, _operator: Viewer, state: StateDep) -> schemas.RehearsalView:
    """The same from every console, whichever runs it."""
    return await state.rehearsals.read(event_id)


@router.delete(
    "/console/api/events/{event_id}/rehearsal",
    status_code=204,
    operation_id="remove_rehearsal",
    summary="Stop and remove the rehearsal of an event",
)
async def remove_rehearsal(request: Request, event_id: EventIdPath, _operator: AnAdmin, state: StateDep) -> None:
    """Stops it if it runs, closes its copy, and forgets its result. What was sold there stays in the tables, as of
    every closed event.
    """
    await state.rehearsals.remove(signed_in(request), event_id)


@router.get(
    schemas.STREAM_PATH, operation_id="stream_event", summary="Stream the figures of an event", response_class=Response,
    responses={
        200: {"model": schemas.Snapshot, "description": "Server-sent events", "content": {"text/event-stream": {}}}
    },
)  # fmt: skip
async def stream(event_id: EventIdPath, request: Request, _operator: Viewer, state: StateDep) -> Response:
    """First `snapshot`, also after a reconnect. Then `vitals` each second, `alarms` and `processes` when they change,
    `change` for each change by an operator, `approvals` when somebody asks for a second person or one decides. It ends
    with the session.
    """
    gatherer = await state.gathering.watched(event_id)
    return streams.EventStream(
        gatherer.watchers, lambda: streams.snapshot(gatherer.snapshot()),
        heartbeat_s=state.tuning.heartbeat_s, ends_s=signed_in(request).expires_at_s,
    )  # fmt: skip


@router.get(
    "/console/api/events/{event_id}/approvals",
    operation_id="list_approvals",
    summary="List what waits for a second person",
)
async def list_approvals(
    event_id: EventIdPath, _operator: Viewer, request: Request, state: StateDep, response: Response
) -> schemas.ApprovalList:
    """An approval itself is told to the operator who asked for it, and to nobody else."""
    response.headers["cache-control"] = NO_STORE
    return schemas.ApprovalList(approvals=await state.approvals.of(event_id, signed_in(request).holder))


@router.post(
    "/console/api/events/{event_id}/approvals",
    status_code=201,
    operation_id="request_approval",
    summary="Ask a second person",
)
async def request_approval(
    event_id: EventIdPath, wanted: schemas.NewApproval, _operator: AnOperator, request: Request, state: StateDep
) -> schemas.ApprovalView:
    """For ten minutes; at most 20 may wait for one event."""
    return await state.approvals.request(event_id, wanted, signed_in(request))


@router.post(
    "/console/api/events/{event_id}/approvals/{approval_id}/{decision}",
    operation_id="decide_approval",
    summary="Approve or refuse what another operator asks for",
)
async def decide_approval(
    event_id: EventIdPath, approval_id: ApprovalIdPath, decision: Literal["approve", "refuse"], _operator: AnOperator,
    request: Request, state: StateDep,
) -> schemas.ApprovalView:  # fmt: skip
    """Needs the control's role. An approval is good for ten minutes, for exactly this request of its requester."""
    session = signed_in(request)
    return await state.approvals.decide(event_id, approval_id, session, approves=decision == "approve")


@router.delete(
    "/console/api/events/{event_id}/approvals/{approval_id}",
    status_code=204,
    operation_id="withdraw_approval",
    summary="Withdraw what you asked a second person for",
)
async def withdraw_approval(
    event_id: EventIdPath, approval_id: ApprovalIdPath, _operator: AnOperator, request: Request, state: StateDep
) -> None:
    """Also puts away what is done or was refused. An approval that you have received stays good until it expires."""
    await state.approvals.withdraw(event_id, approval_id, signed_in(request))


async def index(request: FastRequest) -> Answer:
    return await built_file(request.fields, PAGES, "index.html", {**SECURITY, "cache-control": "no-cache"})


async def screen(request: FastRequest) -> Answer:
    """The same document: the page reads its address."""
    if not _event_id.fullmatch(request.path["event_id"]):
        raise NotFound
    return await index(request)


async def asset(request: FastRequest) -> Answer:
    return await built_file(request.fields, PAGES, request.path["name"], {**SECURITY, "cache-control": IMMUTABLE})


FAST_ROUTES = [
    FastRoute("GET", path, handler, in_schema=False)
    for path, handler in (
        ("/console", index), ("/console/", index), ("/console/events/{event_id}", screen),
        ("/console/wall/{event_id}", screen), ("/console/assets/{name}", asset),
    )
]  # fmt: skip
