"""The operators' desk: what is done by hand once (admit, rebuild), the dry run, and the audit trail."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.queue.admin.rooms import NO_REASON, IfMatch, obey, wanted_version
from services.queue.admin.schemas import Admit, Admitted, Changes, PlanRequest, PlanView, RoomView, Step
from services.queue.admission import gatekeeper
from services.queue.problems import RoomStateConflict
from services.queue.rooms import capacity_plan
from services.queue.rooms.audit_log import changes
from services.queue.state import Queue
from shared.runtime.clock import now_ms
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventIdPath

router = APIRouter(prefix="/admin/queue/events/{event_id}", tags=["admin"])
PAGE_MAX = 200
ADMITTING = frozenset({"open", "paused", "draining"})


@router.post("/room/admit", summary="Admit fans beyond the rate")
async def admit(
    event_id: EventIdPath, wish: Admit, operator: AnOperator, queue: Queue, if_match: IfMatch = None
) -> Admitted:
    """The next in line, at once, in a paused room too; never beyond `max_active` or the stock. What cannot be called
    now is forgotten. Send `If-Match`: then a repeated request admits nobody twice.
    """
    frame = await queue.gatekeeper.frame(event_id)
    if frame.state not in ADMITTING:
        raise RoomStateConflict(f"A room that is {frame.state} admits nobody.", state=frame.state)
    version = wanted_version(if_match)
    room = await queue.rooms.record_action(
        event_id, actor=operator.name, action="admit", reason=wish.reason, version=version, admit=wish.count
    )
    called = await gatekeeper.admit_now(queue.line, queue.gatekeeper, room, wish.count)
    return Admitted(called=called, asked=wish.count)


@router.post("/room/rebuild", summary="Rebuild Redis from the database")
async def rebuild(
    event_id: EventIdPath, operator: AnOperator, queue: Queue, response: Response,
    step: Step = NO_REASON, if_match: IfMatch = None,
) -> RoomView:  # fmt: skip
    """Places, order and passes stay; the rate ramps up again within 30 s."""
    version = wanted_version(if_match)
    room = await queue.rooms.record_action(
        event_id, actor=operator.name, action="rebuild", reason=step.reason, version=version
    )
    await queue.recovery.rebuild(event_id, by_hand=True)
    return await obey(queue, await queue.rooms.read(room.event_id), response)


@router.post("/room/plan", summary="Preview a rate without setting it")
async def try_out(event_id: EventIdPath, wish: PlanRequest, _operator: Viewer, queue: Queue) -> PlanView:
    """When the line as it is now would be drained, and what binds."""
    room = await queue.rooms.read(event_id)
    use = await capacity_plan.slot_use(queue.rooms.db, room, at_ms=now_ms() + queue.line.clock_offset_ms)
    return capacity_plan.planned(room, await queue.gatekeeper.frame(event_id), use, wish)


@router.get("/changes", summary="List audit log entries")
async def history(
    event_id: EventIdPath, _operator: Viewer, queue: Queue,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> Changes:  # fmt: skip
    """Newest first."""
    await queue.rooms.read(event_id)
    found = await changes(queue.rooms.db, event_id, before=before, count=page_size + 1)
    page, more = found[:page_size], len(found) > page_size
    older = f"/admin/queue/events/{event_id}/changes?before={page[-1].id}&page_size={page_size}" if more else None
    return Changes(changes=page, next=older)
