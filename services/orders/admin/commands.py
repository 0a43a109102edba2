"""The admin API of commands and their replay, of the share of checkouts in the background, and of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from services.orders.state import state_of
from services.orders.store import command_log
from services.orders.tables import audit_log
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import (
    BackgroundShareAnswer,
    BackgroundShareChanged,
    BackgroundShareRequest,
    Command,
    CommandPage,
    CommandStatus,
    Reason,
)
from shared.contracts.fields import EventId
from shared.postgres.pages import BeforeId, PageRequest, PageSizeQuery
from shared.security.auth import AnOperator, Viewer
from shared.web.parameters import EventIdPath, ReferenceQuery

router = APIRouter(prefix="/admin/orders", tags=["admin"])
COMMAND_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
CommandIdPath = Annotated[str, Path(pattern=COMMAND_ID)]
CommandIdQuery = Annotated[str | None, Query(pattern=COMMAND_ID)]
SubjectQuery = Annotated[str | None, Query(alias="subject", pattern=r"^(event|order|webhook):[A-Za-z0-9_-]{1,64}$")]


@router.get("/commands", summary="List commands")
async def list_commands(
    request: Request, operator: Viewer, status: CommandStatus | None = None, reference: ReferenceQuery = None,
    event_id: EventId | None = None, before: CommandIdQuery = None, page_size: PageSizeQuery = 50,
) -> CommandPage:  # fmt: skip
    """Newest first."""
    page = PageRequest(request.url, before, page_size)
    db = state_of(request).db
    return await command_log.list_commands(db, page, status=status, reference=reference, event_id=event_id)


@router.post("/commands/{command_id}/rerun", status_code=202, summary="Replay a command")
async def replay(operator: AnOperator, command_id: CommandIdPath, body: Reason, request: Request) -> Command:
    return await command_log.replay(state_of(request).store, command_id, actor=operator.name, reason=body.reason)


@router.get("/events/{event_id}/background-share", summary="Get the share of checkouts processed in the background")
async def get_share(operator: Viewer, event_id: EventIdPath, request: Request) -> BackgroundShareAnswer:
    shares = state_of(request).background_share
    await shares.refresh()
    return BackgroundShareAnswer(event_id=event_id, background_percent=shares.percent(event_id))


@router.patch(
    "/events/{event_id}/background-share", summary="Change the share of checkouts processed in the background"
)
async def change_share(
    operator: AnOperator, event_id: EventIdPath, body: BackgroundShareRequest, request: Request
) -> BackgroundShareChanged:
    percent = body.background_percent
    changed = await state_of(request).background_share.change(
        event_id, percent, actor=operator.name, action="background", reason=body.reason
    )
    return BackgroundShareChanged(event_id=event_id, background_percent=percent, changed=changed)


@router.get("/changes", summary="List audit log entries")
async def list_changes(request: Request, operator: Viewer, page: BeforeId, subject: SubjectQuery = None) -> AuditPage:
    """Newest first, of one subject or of all."""
    return await audit_log.read_page(state_of(request).db, page, subject=subject)
