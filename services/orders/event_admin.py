"""The door of the event file: what orders must know of a show, its fees and taxes, and how its checkouts are done."""

import logging
from typing import Any

from fastapi import APIRouter, Request

from services.orders import events, price_book
from services.orders.room import Room
from shared.auth import AnAdmin
from shared.contracts.event_file import EventFile
from shared.inputs import EventIdPath
from shared.logs import data
from shared.problems import InvalidRequest

log = logging.getLogger("onsale.orders")
router = APIRouter(prefix="/admin/orders/events/{event_id}", tags=["admin"])


@router.put("", summary="Apply an event file")
async def put_event(request: Request, operator: AnAdmin, event_id: EventIdPath, file: EventFile) -> dict[str, Any]:
    """It holds for orders from now on; those that were placed keep the price they were placed at."""
    if file.event_id != event_id:
        raise InvalidRequest("event_id in the file and in the address differ.")
    room: Room = request.app.state.room
    changes = [
        await events.apply(room.engine, file, by=operator.name),
        await price_book.apply(room.engine, file, actor=operator.name),
        await room.shares.apply(file, actor=operator.name),
    ]
    room.prices.forget(event_id)
    changed = any(changes)
    log.info("event.applied", extra=data(event_id=event_id, by=operator.name, changed=changed))
    return {"event_id": event_id, "changed": changed, "fees": len(file.fees), "taxes": len(file.taxes)}
