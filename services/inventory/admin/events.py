"""What operators do: apply an event file, release holds, ask for an audit."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import text

from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.reconcile.invariants import audit, confirmed
from services.inventory.redis_stock.push import push_stock
from services.inventory.reservations.expiry import ReleaseReason, cancel
from services.inventory.reservations.repository import ReservationRow, read
from services.inventory.state import InRoom, State
from services.inventory.stock.hold_times import hold_times
from shared.contracts.event_file import EventFile
from shared.runtime.clock import now_ms
from shared.runtime.logging import data
from shared.security.auth import AnAdmin, AnOperator, Operator, Viewer
from shared.web.fields import DryRun, EventIdPath
from shared.web.problems import InvalidRequest, PaymentInProgress, UnknownReservation

log = logging.getLogger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory", tags=["admin"])
ReservationIdPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
RELEASE_MAX = 500
PENDING = text(
    "SELECT reservation_id FROM inventory.reservation WHERE event_id = :event_id AND status = 'pending_payment' "
    "LIMIT :count_max"
)


@router.put("/events/{event_id}", summary="Apply an event file")
async def put_event(
    operator: AnAdmin, inventory: InRoom, event_id: EventIdPath, file: EventFile, dry_run: DryRun = False
) -> dict[str, Any]:
    """Applying it again changes nothing. With `dry_run` everything is checked and nothing is changed."""
    if file.event_id != event_id:
        raise InvalidRequest("event_id in the file and in the address differ.")
    applied = await apply_event_file(inventory.db, file, actor=operator.name, dry_run=dry_run)
    if not dry_run:
        if applied.touched:
            await push_stock(inventory.db, inventory.redis_stock, event_id, applied.touched)
        await inventory.watcher.check()
        log.info("layout.applied", extra=data(event_id=event_id, by=operator.name, changed=applied.changed))
    capacity = sum(section.capacity for section in file.sections)
    return {
        "event_id": event_id, "changed": applied.changed, "sections": len(file.sections), "capacity": capacity,
        "dry_run": dry_run,
    }  # fmt: skip


@router.post("/events/{event_id}/release-all", summary="Release every hold that is not being paid")
async def release_all(operator: AnOperator, inventory: InRoom, event_id: EventIdPath) -> dict[str, int]:
    inventory.catalogue.layout(event_id)
    released = 0
    while True:
        async with inventory.reading.connect() as connection:
            values = {"event_id": event_id, "count_max": RELEASE_MAX}
            ids = list((await connection.execute(PENDING, values)).scalars())
        ended = await _cancel(inventory, event_id, ids, how="release-all", operator=operator)
        released += len(ended)
        if not ended:
            return {"released": released}


@router.post("/reservations/{reservation_id}/release", summary="Release a hold")
async def release(operator: AnOperator, inventory: InRoom, reservation_id: ReservationIdPath) -> dict[str, Any]:
    record = await _read(inventory, reservation_id)
    if record.status == "pending_payment":
        await _cancel(inventory, record.event_id, [reservation_id], how="operator", operator=operator)
        record = await _read(inventory, reservation_id)
    if record.is_live:
        raise PaymentInProgress("The reservation is being paid; its order must end first.")
    return {"reservation_id": reservation_id, "status": record.status}


async def _read(inventory: State, reservation_id: str) -> ReservationRow:
    async with inventory.reading.connect() as connection:
        record = (await read(connection, [reservation_id])).get(reservation_id)
    if record is None:
        raise UnknownReservation
    return record


async def _cancel(
    inventory: State, event_id: str, ids: list[str], *, how: ReleaseReason, operator: Operator
) -> list[str]:
    now = now_ms() + inventory.redis_stock.clock_offset_ms
    return await cancel(inventory.db, inventory.redis_stock, event_id, ids, how=how, now_ms=now, actor=operator.name)


@router.get("/events/{event_id}/hold-times", summary="Get hold times")
async def get_hold_times(operator: Viewer, inventory: InRoom, event_id: EventIdPath) -> dict[str, Any]:
    """Percentiles, returning fans, a suggested `hold_ttl_s`, and conversion by arm, from the ledger."""
    return await hold_times(inventory.db, inventory.catalogue.layout(event_id))


@router.get("/events/{event_id}/audit", summary="Check the invariants of an event's stock")
async def get_audit(operator: Viewer, inventory: InRoom, event_id: EventIdPath) -> dict[str, Any]:
    invariants = await audit(inventory.db, inventory.redis_stock, inventory.catalogue.layout(event_id))
    return {"confirmed": await confirmed(inventory.db, event_id), "invariants": invariants}
