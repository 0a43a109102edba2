"""The reconcile report: drift that this process sees, drift that was recorded, and oversells with their returns."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reconcile import oversell
from services.inventory.reconcile.drift import SHOWN_MAX, recent_drift
from shared.contracts.admin.inventory import OversellCase, OversellReturn, ReconcileReport, UnconfirmedDrift

RETURNS = text(
    "SELECT oversell_id, reservation_id, order_reference, returned_at, refund, refunded_at "
    "FROM inventory.oversell_return WHERE event_id = :event_id ORDER BY oversell_id DESC, reservation_id LIMIT 500"
)


async def reconcile_report(db: AsyncEngine, event_id: str, *, unconfirmed: list[UnconfirmedDrift]) -> ReconcileReport:
    async with db.connect() as connection:
        recorded = await recent_drift(connection, event_id)
        cases = await oversell.list_cases(connection, event_id)
        rows = (await connection.execute(RETURNS, {"event_id": event_id})).mappings()
        returns = [OversellReturn.model_validate(dict(row)) for row in rows]
    return ReconcileReport(
        watched=unconfirmed[:SHOWN_MAX],
        found=recorded,
        oversell=[
            OversellCase.model_validate({**case, "returns": [r for r in returns if r.oversell_id == case["id"]]})
            for case in cases
        ],
    )
