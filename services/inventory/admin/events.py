"""Operators' API for events: the event file, applied and read back, release of holds, reconciliation, the invariants,
the audit log.
"""

from typing import Annotated

from fastapi import APIRouter, Path

from services.inventory import tables
from services.inventory.catalogue.read_event_file import read_event_file
from services.inventory.reconcile.invariants import check_invariants
from services.inventory.state import StateDep
from shared.audit_log import of_event
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.inventory import (
    EventApplied,
    HoldsRelease,
    HoldsReleased,
    ReconcilePass,
    ReconcileRequest,
    ReservationReleased,
    StockInvariants,
)
from shared.contracts.event_file import EventFile, StockPart
from shared.contracts.file_parts import require_on
from shared.errors.problems import InvalidRequest
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, AnOperator, Viewer, control
from shared.web.request import DryRun, EventIdPath, ReasonQuery

router = APIRouter(prefix="/admin/inventory", tags=["admin"])
changes = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
NO_REASON = ReconcileRequest()
ReservationIdPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


@router.put("/events/{event_id}", operation_id="apply_inventory_event", summary="Apply an event file")
async def put_event(
    operator: AnAdmin, state: StateDep, event_id: EventIdPath, file: EventFile, dry_run: DryRun = False,
    reason: ReasonQuery = None,
) -> EventApplied:  # fmt: skip
    """Applying the same file again changes nothing. With `dry_run` everything is checked and nothing is changed."""
    if file.event_id != event_id:
        raise InvalidRequest("event_id in the file and in the path differ. Use the same id in both.")
    require_on(file, "event", state.settings.features_off)
    require_on(file.sales, "sales", state.settings.features_off)
    return await state.event_files.apply(file, actor=operator.name, reason=reason, dry_run=dry_run)


@router.get("/events/{event_id}", operation_id="read_inventory_event", summary="Get inventory's part of the event file")
async def get_event(operator: Viewer, state: StateDep, event_id: EventIdPath) -> StockPart:
    """As it stands now: applying it changes nothing. Allotments that are open are left out, as their places are on
    sale.
    """
    return await read_event_file(state.db, event_id, state.event_file_parts)


@router.post(
    "/events/{event_id}/release-all",
    operation_id="release_all_holds",
    openapi_extra=control("release_all"),
    summary="Release every hold that is not being paid",
)
async def release_all(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, body: HoldsRelease
) -> HoldsReleased:
    state.catalogue.layout(event_id)
    released = await state.holds.release_all(event_id, actor=operator.name, reason=body.reason)
    return HoldsReleased(released=released)


@router.post("/reservations/{reservation_id}/release", operation_id="release_hold", summary="Release a hold")
async def release(
    operator: AnOperator, state: StateDep, reservation_id: ReservationIdPath, body: HoldsRelease
) -> ReservationReleased:
    record = await state.holds.release_one(reservation_id, actor=operator.name, reason=body.reason)
    return ReservationReleased(reservation_id=reservation_id, status=record.status)


@router.get(
    "/events/{event_id}/audit",
    operation_id="check_inventory_invariants",
    summary="Check the invariants of an event's stock",
)
async def get_audit(operator: Viewer, state: StateDep, event_id: EventIdPath) -> StockInvariants:
    return await check_invariants(
        state.db, state.redis_stock, state.catalogue.layout(event_id), state.stock_checks
    )  # fmt: skip


@router.post("/events/{event_id}/reconcile", operation_id="reconcile", summary="Reconcile Redis and the database")
async def post_reconcile(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, body: ReconcileRequest = NO_REASON
) -> ReconcilePass:
    """One pass. It corrects differences that an earlier pass, at least five seconds ago, saw unchanged."""
    layout = state.catalogue.layout(event_id)
    return await state.reconciler.reconcile_for(layout, actor=operator.name, reason=body.reason)


@changes.get("/changes", operation_id="list_inventory_changes", summary="List audit log entries")
async def list_changes(operator: Viewer, state: StateDep, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    """Newest first."""
    state.catalogue.layout(event_id)
    return await tables.audit_log.read_page(state.autocommit_db, page, subject=of_event(event_id))
