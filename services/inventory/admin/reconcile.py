"""Operators' API for reconciliation: compare now, list drift and oversells, approve the cancelling of tickets."""

from fastapi import APIRouter

from services.inventory.reconcile import oversell
from services.inventory.reconcile.oversell import reconcile_report
from services.inventory.state import StateDep
from shared.contracts.admin.inventory import (
    OversellApproval,
    OversellApproved,
    ReconcilePass,
    ReconcileReport,
    ReconcileRequest,
)
from shared.rules.two_persons import control
from shared.security.auth import AnAdmin, AnOperator, Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/inventory", tags=["admin"])
NO_REASON = ReconcileRequest()


@router.post("/events/{event_id}/reconcile", operation_id="reconcile", summary="Reconcile Redis and the database")
async def post_reconcile(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, body: ReconcileRequest = NO_REASON
) -> ReconcilePass:
    """One pass. It corrects differences that an earlier pass, at least five seconds ago, saw unchanged."""
    layout = state.catalogue.layout(event_id)
    return await state.reconciler.reconcile_for(layout, actor=operator.name, reason=body.reason)


@router.get("/events/{event_id}/reconcile", operation_id="list_drift", summary="List drift and oversells")
async def get_reconcile(operator: Viewer, state: StateDep, event_id: EventIdPath) -> ReconcileReport:
    """`watched` is what this process sees and has not acted on; the rest is the same in every process."""
    state.catalogue.layout(event_id)
    return await reconcile_report(state.autocommit_db, event_id, unconfirmed=state.reconciler.unconfirmed(event_id))


@router.post(
    "/events/{event_id}/oversell/approve",
    operation_id="approve_oversell",
    openapi_extra=control("approve_oversell"),
    summary="Cancel the latest buyers of an oversell",
)
async def approve(
    operator: AnAdmin, state: StateDep, event_id: EventIdPath, approval: OversellApproval
) -> OversellApproved:
    """Decides every waiting oversell of this event: those who bought last lose their tickets and are
    refunded in full.
    """
    state.catalogue.layout(event_id)
    return await oversell.approve(state.db, event_id, by=operator.name, reason=approval.reason)
