"""Operators' actions on a waiting room: message, reset, manual admission, Redis rebuild, state.

Each action is written to the audit log. With `If-Match` a repeated request is refused, so it acts only once.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Response
from starlette.convertors import StringConvertor, register_url_convertor

from services.queue.admin.rooms import ROOM, WantedVersion, with_etag
from services.queue.rooms.model import RequestedBy
from services.queue.rooms.store import TRANSITIONS, Action
from services.queue.state import StateDep
from shared.contracts.admin.queue import (
    ActionReason,
    AdmitRequest,
    AdmitResult,
    QueueMessage,
    RoomView,
)
from shared.security.auth import AnAdmin, AnOperator, control
from shared.web.request import EventIdPath, idempotency_key

router = APIRouter(tags=["admin"])
NO_REASON = ActionReason()


class _TransitionPath(StringConvertor):
    """Only the actions' own paths: another below a room is a part's, or there is none."""

    regex = "|".join(TRANSITIONS)


register_url_convertor("transition", _TransitionPath())


@router.post(ROOM + "/admit", operation_id="admit", summary="Admit fans beyond the rate")
async def admit(
    event_id: EventIdPath, request: AdmitRequest, operator: AnOperator, state: StateDep, version: WantedVersion,
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> AdmitResult:  # fmt: skip
    """Calls the next fans at once, in a paused room too; never beyond `max_active` or the stock. Fans who cannot be
    called now are not called later either. Requests with the same `Idempotency-Key` are one request for a day.
    """
    by = RequestedBy(operator.name, request.reason, version)
    once = None if key is None else idempotency_key(key)
    return await state.operations.admit(event_id, request.count, by, once)


@router.post(ROOM + "/rebuild", operation_id="rebuild_room", summary="Rebuild Redis from the database")
async def rebuild(
    event_id: EventIdPath, operator: AnOperator, state: StateDep, response: Response,
    version: WantedVersion, body: ActionReason = NO_REASON,
) -> RoomView:  # fmt: skip
    """Places, order and passes stay; the rate ramps up again within 30 s."""
    by = RequestedBy(operator.name, body.reason, version)
    return with_etag(await state.operations.rebuild(event_id, by), response)


@router.post(ROOM + "/message", operation_id="set_message", summary="Set the queue message")
async def message(
    event_id: EventIdPath, request: QueueMessage, operator: AnOperator, state: StateDep, response: Response,
    version: WantedVersion,
) -> RoomView:  # fmt: skip
    by = RequestedBy(operator.name, request.reason, version)
    return with_etag(await state.operations.set_message(event_id, request.message, by), response)


@router.post(ROOM + "/reset", operation_id="reset_room", openapi_extra=control("reset_room"), summary="Reset the queue")
async def reset(
    event_id: EventIdPath, operator: AnAdmin, state: StateDep, response: Response,
    version: WantedVersion, body: ActionReason = NO_REASON,
) -> RoomView:  # fmt: skip
    """Starts a new line: places, tokens and passes of the old line are invalid. Fans who hold tickets may still pay."""
    by = RequestedBy(operator.name, body.reason, version)
    return with_etag(await state.operations.reset(event_id, by), response)


@router.post(
    ROOM + "/{action:transition}",
    operation_id="set_room_state",
    openapi_extra=control("close_room", action="close"),
    summary="Open, pause, resume, drain or close the room",
)
async def transition(
    event_id: EventIdPath, action: Action, operator: AnOperator, state: StateDep, response: Response,
    version: WantedVersion, body: ActionReason = NO_REASON,
) -> RoomView:  # fmt: skip
    """While a room drains nobody new may join, and the fans in line are still called."""
    by = RequestedBy(operator.name, body.reason, version)
    return with_etag(await state.operations.transition(event_id, action, by), response)
