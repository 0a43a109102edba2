"""Operators' API of a waiting room: its part of the event file, configuration, audit log and invariants.

Every change is written to the audit log. With `If-Match` a change is made only to the version that was read.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from services.queue.rooms.model import RequestedBy
from services.queue.state import StateDep
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.queue import QueueInvariantReport, RoomDryRun, RoomPatch, RoomView
from shared.contracts.event_file import EventFile, RoomPart
from shared.contracts.file_parts import GuardedChange, require_on
from shared.errors.problems import InvalidRequest, NotAllowed, Problem, SecondPersonNeeded, VersionMismatch
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, AnOperator, Operator, Viewer
from shared.web.request import DryRun, EventIdPath, ReasonQuery

router = APIRouter(tags=["admin"])
ROOM = "/admin/events/{event_id}/room"
EVENT = "/admin/queue/events/{event_id}"


async def wanted_version(if_match: Annotated[str | None, Header(alias="If-Match", max_length=64)] = None) -> int | None:
    """The version that `If-Match` names; `*` is any."""
    if if_match is None or if_match == "*":
        return None
    text = if_match.removeprefix("W/").strip('"')
    if not text.isdigit():
        raise VersionMismatch("If-Match is not an ETag of this room. Read the room again.")
    return int(text)


WantedVersion = Annotated[int | None, Depends(wanted_version)]


@router.put(
    EVENT,
    operation_id="apply_queue_event",
    summary="Apply an event file",
    responses={201: {"model": RoomView, "description": "A new room"}},
)
async def apply(
    event_id: EventIdPath, file: EventFile, operator: AnAdmin, state: StateDep, request: Request, response: Response,
    dry_run: DryRun = False, reason: ReasonQuery = None,
) -> RoomView | RoomDryRun:  # fmt: skip
    """Creates the room as a draft, or changes its configuration to the file's. Applying the same file again changes
    nothing. With `dry_run` everything is checked and nothing is changed. Where `change_gate` needs a second person, a
    room's `gate.waiting_room` and `return_to` stay as they are.
    """
    if file.event_id != event_id:
        raise InvalidRequest("event_id: the file is about another event than the address.")
    require_on(file.room, "room", request.app.state.settings.features_off)
    by = RequestedBy(operator.name, reason, refuses=refusals(request, operator))
    answer, created = await state.operations.apply_event_file(file, by, dry_run=dry_run)
    response.status_code = 201 if created else 200
    return with_etag(answer, response) if isinstance(answer, RoomView) else answer


@router.get(EVENT, operation_id="read_queue_event", summary="Get the queue's part of the event file")
async def get_event(event_id: EventIdPath, _operator: Viewer, state: StateDep) -> RoomPart:
    """As it stands now: applying it changes nothing."""
    return (await state.rooms.read(event_id)).event_file_part()


@router.get(ROOM, operation_id="read_room", summary="Get the waiting room")
async def get_room(event_id: EventIdPath, _operator: Viewer, state: StateDep, response: Response) -> RoomView:
    return with_etag(await state.operations.get(event_id), response)


@router.patch(ROOM, operation_id="change_room", summary="Change the room's configuration")
async def change(
    event_id: EventIdPath, patch: RoomPatch, operator: AnOperator, state: StateDep, request: Request,
    response: Response, version: WantedVersion,
) -> RoomView:  # fmt: skip
    """Takes effect with the next tick. With `If-Match`, only if nobody changed the room since you read it. Who changes
    `gate.waiting_room` or `gate.return_to` must be an admin; where that needs a second person, `POST …/room/gate` does
    it.
    """
    require_on(patch, "room_patch", request.app.state.settings.features_off)
    by = RequestedBy(operator.name, patch.reason, version, refusals(request, operator))
    return with_etag(await state.operations.change(event_id, patch, by), response)


def refusals(request: Request, operator: Operator) -> Callable[[GuardedChange], Problem | None]:
    """Why this operator, alone, may not make a guarded change."""

    def refusal(change: GuardedChange) -> Problem | None:
        if change.control in request.app.state.settings.two_persons:
            detail = f"Who changes {change.fields} needs a second operator. Use {change.instead}."
            return SecondPersonNeeded(detail, control=change.control)
        if operator.role != "admin":
            return NotAllowed(f"{change.effect}: that needs the role admin.")
        return None

    return refusal


@router.get(EVENT + "/changes", operation_id="list_queue_changes", summary="List audit log entries")
async def list_audit_log(event_id: EventIdPath, _operator: Viewer, state: StateDep, page: BeforeId) -> AuditPage:
    """Newest first."""
    return await state.operations.audit_log(event_id, page)


@router.get(EVENT + "/audit", operation_id="check_queue_invariants", summary="Check the invariants of the queue")
async def invariants(event_id: EventIdPath, _operator: Viewer, state: StateDep) -> QueueInvariantReport:
    return await state.operations.invariants(event_id)


def with_etag(view: RoomView, response: Response) -> RoomView:
    """The same view; its version becomes the response's `ETag`."""
    response.headers["ETag"] = f'"{view.version}"'
    return view
