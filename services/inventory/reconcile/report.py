"""The reconcile report: drift that this process sees, drift that was recorded, and oversells with their returns."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reconcile import oversell, reconciler
from services.inventory.reconcile.redis_diff import Difference
from shared.contracts.admin.inventory import OversellCase, OversellReturn, ReconcileReport, UnconfirmedDrift

RETURNS = text(
    "SELECT oversell_id, reservation_id, order_reference, returned_at, refund, refunded_at "
    "FROM inventory.oversell_return WHERE event_id = :event_id ORDER BY oversell_id DESC, reservation_id LIMIT 500"
)


async def reconcile_report(
    db: AsyncEngine, event_id: str, *, unconfirmed: Iterable[tuple[Difference, datetime]]
) -> ReconcileReport:
    async with db.connect() as connection:
        recorded = await reconciler.recent_drift(connection, event_id)
        cases = await oversell.list_cases(connection, event_id)
        rows = (await connection.execute(RETURNS, {"event_id": event_id})).mappings()
        returns = [OversellReturn.model_validate(dict(row)) for row in rows]
    return ReconcileReport(
        watched=[
            UnconfirmedDrift(what=item, seen=actual, should_be=expected, since=since)
            for (item, actual, expected), since in list(unconfirmed)[: reconciler.SHOWN_MAX]
        ],
        found=recorded,
        oversell=[
            OversellCase.model_validate({**case, "returns": [r for r in returns if r.oversell_id == case["id"]]})
            for case in cases
        ],
    )
