"""The admin API of commands and their replay, of the share of checkouts in the background, and of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from services.orders.api.orders import Page, PageSize
from services.orders.audit import audit_log, command_log, pages
from services.orders.state import state_of
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import (
    LIST_AUDIT_LOG,
    BackgroundShareAnswer,
    BackgroundShareChanged,
    BackgroundShareRequest,
    Command,
    CommandPage,
    CommandStatus,
    Reason,
)
from shared.postgres.audit_log import BeforeQuery, PageSizeQuery
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventId, EventIdPath
from shared.web.routes import REFERENCE

router = APIRouter(prefix="/admin/orders", tags=["admin"])
CommandIdPath = Annotated[str, Path(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
ReferenceQuery = Annotated[str | None, Query(alias="reference", pattern=f"^{REFERENCE}$")]
SubjectQuery = Annotated[str | None, Query(alias="subject", pattern=r"^(event|order|webhook):[A-Za-z0-9_-]{1,64}$")]


@router.get("/commands", summary="List commands")
async def list_commands(
    request: Request, operator: Viewer, status: CommandStatus | None = None, reference: ReferenceQuery = None,
    event_id: EventId | None = None, page: Page = 1, page_size: PageSize = 50,
) -> CommandPage:  # fmt: skip
    return await pages.list_commands(
        state_of(request).db, status=status, reference=reference, event_id=event_id, page=page, page_size=page_size
    )


@router.post("/commands/{command_id}/rerun", status_code=202, summary="Replay a command")
async def replay(operator: AnOperator, command_id: CommandIdPath, body: Reason, request: Request) -> Command:
    state = state_of(request)
    again = await command_log.replay(state.db, command_id, actor=operator.name, reason=body.reason)
    state.worker_pool.queue.wake()
    return Command.model_validate(again)


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
async def list_changes(
    request: Request, operator: Viewer, subject: SubjectQuery = None, before: BeforeQuery = None,
    page_size: PageSizeQuery = 50,
) -> AuditPage:  # fmt: skip
    """Newest first, of one subject or of all."""
    query = {"subject": subject} if subject is not None else None
    return await audit_log.list_entries(
        state_of(request).db, LIST_AUDIT_LOG.path, subject=subject, before=before, page_size=page_size, query=query
    )
