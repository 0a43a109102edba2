"""Operators' API of an event's access codes: create, list, revoke."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from services.queue.rooms.model import RequestedBy
from services.queue.state import StateDep
from shared.contracts.admin.queue import (
    AccessCodePage,
    CodeId,
    CreateAccessCodes,
    CreatedAccessCodes,
    RevokeAccessCodes,
    RevokedAccessCodes,
)
from shared.postgres.pages import LongPageSizeQuery, PageRequest
from shared.security.auth import AnOperator, Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/queue/events/{event_id}/codes", tags=["admin"])


@router.post("", status_code=201, operation_id="create_access_codes", summary="Create access codes")
async def create(
    event_id: EventIdPath, request: CreateAccessCodes, operator: AnOperator, state: StateDep
) -> CreatedAccessCodes:
    """The codes are shown only in this answer."""
    codes = await state.access_codes.create(
        await state.rooms.read(event_id), RequestedBy(operator.name, request.reason), lane=request.lane,
        count=request.count, uses=request.uses,
    )  # fmt: skip
    return CreatedAccessCodes(codes=codes)


@router.get("", operation_id="list_access_codes", summary="List access codes")
async def page(
    request: Request, event_id: EventIdPath, _operator: Viewer, state: StateDep,
    lane: Annotated[int | None, Query(ge=1, le=15)] = None,
    before: Annotated[CodeId | None, Query()] = None, page_size: LongPageSizeQuery = 50,
) -> AccessCodePage:  # fmt: skip
    """Newest first."""
    page = PageRequest(request.url, before, page_size)
    return await state.access_codes.page(await state.rooms.read(event_id), page, lane=lane)


@router.post("/revoke", operation_id="revoke_access_codes", summary="Revoke access codes")
async def revoke(
    event_id: EventIdPath, request: RevokeAccessCodes, operator: AnOperator, state: StateDep
) -> RevokedAccessCodes:
    """Answers how many were valid until now; unknown and already revoked codes are not counted."""
    revoked = await state.access_codes.revoke(
        await state.rooms.read(event_id), RequestedBy(operator.name, request.reason), codes=request.codes,
        ids=request.code_ids,
    )  # fmt: skip
    return RevokedAccessCodes(revoked=revoked)
