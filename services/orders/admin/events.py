"""The door of the event file: what orders must know of a show, its fees and taxes, and how its checkouts are done."""

import logging
from typing import Any

from fastapi import APIRouter, Request

from services.orders.checkout import background_share
from services.orders.pricing import admin
from services.orders.state import State
from services.orders.tickets import show
from shared.contracts.event_file import EventFile
from shared.postgres.engine import transaction
from shared.runtime.logging import data
from shared.security.auth import AnAdmin
from shared.web.fields import DryRun, EventIdPath
from shared.web.problems import InvalidRequest

log = logging.getLogger("onsale.orders")
router = APIRouter(prefix="/admin/orders/events/{event_id}", tags=["admin"])


@router.put("", summary="Apply an event file")
async def put_event(
    request: Request, operator: AnAdmin, event_id: EventIdPath, file: EventFile, dry_run: DryRun = False
) -> dict[str, Any]:
    """It holds for orders from now on; those that were placed keep the price they were placed at. With `dry_run`
    everything is checked and nothing is changed.
    """
    if file.event_id != event_id:
        raise InvalidRequest("event_id in the file and in the address differ.")
    state: State = request.app.state.deps
    async with transaction(state.db, dry_run=dry_run) as connection:
        changes = [
            await show.apply(connection, file, by=operator.name),
            await admin.apply(connection, file, actor=operator.name),
            await background_share.apply(connection, file, actor=operator.name),
        ]
    changed = any(changes)
    if not dry_run:
        state.prices.forget(event_id)
        await state.shares.refresh()
        log.info("event.applied", extra=data(event_id=event_id, by=operator.name, changed=changed))
    return {
        "event_id": event_id, "changed": changed, "fees": len(file.fees), "taxes": len(file.taxes), "dry_run": dry_run
    }  # fmt: skip
