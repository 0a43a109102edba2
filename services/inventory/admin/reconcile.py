"""Operators' doors to reconcile: look now, read what was found and done, approve what cancels tickets."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy import text

from services.inventory.reconcile import oversell, reconciler
from services.inventory.state import InRoom
from shared.runtime.logging import data
from shared.security.auth import AnAdmin, AnOperator, Viewer
from shared.web.fields import Body, EventIdPath, PlainText

log = logging.getLogger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory", tags=["admin"])
GIVEN_BACK = text(
    "SELECT oversell_id, reservation_id, order_reference, returned_at, refund, refunded_at "
    "FROM inventory.oversell_return WHERE event_id = :event_id ORDER BY oversell_id DESC, reservation_id LIMIT 500"
)


class Approval(Body):
    """Why this is right; it is kept with the decision."""

    reason: PlainText


@router.post("/events/{event_id}/reconcile", summary="Reconcile Redis and the database")
async def look(operator: AnOperator, inventory: InRoom, event_id: EventIdPath) -> dict[str, int]:
    """One look. What was seen before, at least five seconds ago, and has not changed is corrected."""
    return await inventory.reconciler.look(inventory.catalogue.layout(event_id))


@router.get("/events/{event_id}/reconcile", summary="List drift and oversell findings")
async def report(operator: Viewer, inventory: InRoom, event_id: EventIdPath) -> dict[str, Any]:
    """`watched` is what this process sees now and has not acted upon; the rest is the same on every process."""
    inventory.catalogue.layout(event_id)
    async with inventory.reading.connect() as connection:
        found = await reconciler.recent(connection, event_id)
        cases = await oversell.cases(connection, event_id)
        returns = [dict(r) for r in (await connection.execute(GIVEN_BACK, {"event_id": event_id})).mappings()]
    watched = [
        {"what": what, "seen": seen, "should_be": should_be, "since": since.isoformat()}
        for (what, seen, should_be), since in inventory.reconciler.watched(event_id)
    ]
    return {
        "watched": watched[: reconciler.SHOWN_MAX],
        "found": [_json(dict(row)) for row in found],
        "oversell": [
            {**_json(dict(case)), "returns": [_json(r) for r in returns if r["oversell_id"] == case["id"]]}
            for case in cases
        ],
    }


@router.post("/events/{event_id}/oversell/approve", summary="Cancel the latest buyers of an oversell")
async def approve(operator: AnAdmin, inventory: InRoom, event_id: EventIdPath, asked: Approval) -> dict[str, Any]:
    """Everything of this event that waits; who bought last gives back first and is refunded in full."""
    inventory.catalogue.layout(event_id)
    chosen = await oversell.approve(inventory.db, event_id, by=operator.name, reason=asked.reason)
    log.warning("oversell.approved", extra=data(event_id=event_id, by=operator.name, cancelled=len(chosen)))
    return {"cancelled": chosen}


def _json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
