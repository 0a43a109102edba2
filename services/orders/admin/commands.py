"""Operators' doors to what was done: commands and their re-runs, the share of the background, the audit trail."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from services.orders.api.orders import Page, PageSize
from services.orders.audit import audit_log, command_log
from services.orders.state import state_of
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import Body, EventId, EventIdPath, PlainText
from shared.web.routes import REFERENCE

router = APIRouter(prefix="/admin/orders", tags=["admin"])
CommandIdPath = Annotated[str, Path(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
CommandStatus = Literal["pending", "processing", "completed", "failed"]
Reference = Annotated[str | None, Query(pattern=f"^{REFERENCE}$")]
Subject = Annotated[str | None, Query(pattern=r"^(event|order|hook):[A-Za-z0-9_-]{1,64}$")]


class Why(Body):
    """It is kept in the audit trail."""

    reason: PlainText


class ShareAsk(Why):
    """How much of an event's checkouts the background does; 0 settles every order in its request, within a bound."""

    background_percent: float = Field(ge=0, le=100)


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row, with its times as text."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


@router.get("/commands", summary="List commands")
async def list_commands(
    request: Request, operator: Viewer, status: CommandStatus | None = None, reference: Reference = None,
    event_id: EventId | None = None, page: Page = 1, page_size: PageSize = 50,
) -> dict[str, Any]:  # fmt: skip
    async with state_of(request).db.connect() as connection:
        found = await command_log.find(
            connection, status=status, reference=reference, event_id=event_id, page=page, page_size=page_size
        )
    return {"page": page, "page_size": page_size, "commands": [as_json(row) for row in found]}


@router.post("/commands/{command_id}/rerun", status_code=202, summary="Replay a command")
async def rerun(operator: AnOperator, command_id: CommandIdPath, why: Why, request: Request) -> dict[str, Any]:
    state = state_of(request)
    again = await command_log.rerun(state.db, command_id, actor=operator.name, reason=why.reason)
    state.workers.wake()
    return as_json(again)


@router.get("/events/{event_id}/checkout", summary="Get the share of checkouts processed in the background")
async def show_share(operator: Viewer, event_id: EventIdPath, request: Request) -> dict[str, Any]:
    shares = state_of(request).shares
    await shares.refresh()
    return {"event_id": event_id, "background_percent": shares.percent(event_id)}


@router.patch("/events/{event_id}/checkout", summary="Change the share of checkouts processed in the background")
async def change_share(operator: AnOperator, event_id: EventIdPath, ask: ShareAsk, request: Request) -> dict[str, Any]:
    changed = await state_of(request).shares.change(
        event_id, ask.background_percent, actor=operator.name, action="background", reason=ask.reason
    )
    return {"event_id": event_id, "background_percent": ask.background_percent, "changed": changed}


@router.get("/changes", summary="List audit log entries")
async def list_changes(
    request: Request, operator: Viewer, subject: Subject = None, page: Page = 1, page_size: PageSize = 50
) -> dict[str, Any]:
    async with state_of(request).db.connect() as connection:
        lines = await audit_log.read(connection, subject=subject, page=page, page_size=page_size)
    return {"page": page, "page_size": page_size, "changes": [as_json(line) for line in lines]}
