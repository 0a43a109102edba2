"""The operators' door to the codes of an event: make, list, revoke."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from services.queue.access.access_code_store import AccessCodeStore
from services.queue.access.access_codes import code_hash
from services.queue.admin.schemas import Reason
from services.queue.state import Queue
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import Body, EventIdPath

router = APIRouter(prefix="/admin/queue/events/{event_id}/codes", tags=["admin"])
CodeId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
CodeText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=64)]


class NewCodes(Body):
    """How many codes for which lane, and for how many places each."""

    lane: int = Field(ge=1, le=15)
    count: int = Field(1, ge=1, le=10_000)
    uses: int = Field(1, ge=1, le=1_000_000)
    reason: Reason | None = None


class Revocation(Body):
    """Codes to take back: as they were handed out, or by their ids."""

    codes: list[CodeText] = Field([], max_length=1000)
    code_ids: list[CodeId] = Field([], max_length=1000)
    reason: Reason | None = None


class CodesMade(BaseModel):
    """The codes. They are told this once: only their hashes are kept."""

    codes: list[str]


class CodeView(BaseModel):
    """What is known of a code; `uses` since the room was last reset."""

    code_id: str
    lane: int
    uses_max: int
    uses: int
    created_at: AwareDatetime
    revoked_at: AwareDatetime | None


class CodePage(BaseModel):
    """One page, newest codes first."""

    total: int
    page: int
    page_size: int
    codes: list[CodeView]


@router.post("", status_code=201, summary="Create access codes")
async def create(event_id: EventIdPath, wanted: NewCodes, operator: AnOperator, queue: Queue) -> CodesMade:
    room = await queue.rooms.read(event_id)
    asked: dict[str, Any] = wanted.model_dump()
    return CodesMade(codes=await queue.codes.create(room, actor=operator.name, **asked))


@router.get("", summary="List access codes")
async def page(
    event_id: EventIdPath, _operator: Viewer, queue: Queue,
    lane: Annotated[int | None, Query(ge=1, le=15)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> CodePage:  # fmt: skip
    book: AccessCodeStore = queue.codes
    total, entries = await book.page(await queue.rooms.read(event_id), lane=lane, page=page, page_size=page_size)
    views = [CodeView(**entry._asdict()) for entry in entries]
    return CodePage(total=total, page=page, page_size=page_size, codes=views)


@router.post("/revoke", summary="Revoke access codes")
async def revoke(event_id: EventIdPath, wanted: Revocation, operator: AnOperator, queue: Queue) -> dict[str, int]:
    """How many stood until now; a code that is unknown or revoked already counts for nothing."""
    hashes = [code_hash(event_id, code) for code in wanted.codes]
    revoked = await queue.codes.revoke(
        await queue.rooms.read(event_id), hashes=hashes, ids=wanted.code_ids, actor=operator.name, reason=wanted.reason
    )
    return {"revoked": revoked}
