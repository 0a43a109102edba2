"""Operators' change of a room's rules of forward-auth."""

from fastapi import APIRouter, Response

from features.forward_auth.rules import GateChange
from services.queue.admin.rooms import ROOM, WantedVersion, with_etag
from services.queue.rooms.model import RequestedBy
from services.queue.state import StateDep
from shared.contracts.admin.queue import RoomView
from shared.security.auth import AnAdmin, control
from shared.web.parts import Part
from shared.web.request import EventIdPath

router = APIRouter(tags=["admin"])
PART = Part(routers=[router])


@router.post(
    ROOM + "/gate",
    operation_id="change_gate",
    openapi_extra=control("change_gate"),
    summary="Change the rules of forward-auth",
)
async def change_gate(
    event_id: EventIdPath, wanted: GateChange, operator: AnAdmin, state: StateDep, response: Response,
    version: WantedVersion,
) -> RoomView:  # fmt: skip
    """The rules say to which sites visitors and their passes go."""
    by = RequestedBy(operator.name, wanted.reason, version)
    return with_etag(await state.operations.change_options(event_id, {"gate": wanted.gate}, by), response)
