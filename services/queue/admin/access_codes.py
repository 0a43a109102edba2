"""Operators' API of an event's access codes: create, list, revoke."""

from typing import Annotated

from fastapi import APIRouter, Query

from services.queue.state import StateDep
from shared.contracts.admin.queue import (
    AccessCodePage,
    CreateAccessCodes,
    CreatedAccessCodes,
    RevokeAccessCodes,
    RevokedAccessCodes,
)
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventIdPath

router = APIRouter(prefix="/admin/queue/events/{event_id}/codes", tags=["admin"])


@router.post("", status_code=201, summary="Create access codes")
async def create(
    event_id: EventIdPath, request: CreateAccessCodes, operator: AnOperator, state: StateDep
) -> CreatedAccessCodes:
    """The codes are shown only in this answer."""
    codes = await state.access_codes.create(
        await state.rooms.read(event_id), lane=request.lane, count=request.count, uses=request.uses,
        actor=operator.name, reason=request.reason,
    )  # fmt: skip
    return CreatedAccessCodes(codes=codes)


@router.get("", summary="List access codes")
async def page(
    event_id: EventIdPath, _operator: Viewer, state: StateDep,
    lane: Annotated[int | None, Query(ge=1, le=15)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AccessCodePage:  # fmt: skip
    """Newest first."""
    return await state.access_codes.page(await state.rooms.read(event_id), lane=lane, page=page, page_size=page_size)


@router.post("/revoke", summary="Revoke access codes")
async def revoke(
    event_id: EventIdPath, request: RevokeAccessCodes, operator: AnOperator, state: StateDep
) -> RevokedAccessCodes:
    """Answers how many were valid until now; unknown and already revoked codes are not counted."""
    revoked = await state.access_codes.revoke(
        await state.rooms.read(event_id), codes=request.codes, ids=request.code_ids, actor=operator.name,
        reason=request.reason,
    )  # fmt: skip
    return RevokedAccessCodes(revoked=revoked)
