"""Every charge of an event and what was given back of it, by our books: what the provider's list is compared with."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy import text

from services.orders.api.orders import Page
from services.orders.state import State
from shared.security.auth import Viewer
from shared.web.fields import EventIdPath

router = APIRouter(prefix="/admin/orders", tags=["admin"])
PageSize = Annotated[int, Query(ge=1, le=1000)]

_CHARGES = text("""
    SELECT m.reference, m.provider, m.charge_ref, m.currency, m.amount_minor AS charged_minor, coalesce((
        SELECT sum(r.amount_minor)
        FROM (SELECT * FROM orders.money_entry WHERE reference = m.reference OFFSET 0) AS r
        WHERE r.kind = 'refund' AND r.provider = m.provider
            AND r.charge_ref = m.charge_ref), 0)::bigint AS refunded_minor
    FROM orders.money_entry m
    WHERE m.kind = 'charge'
        AND :event_id = (SELECT o.event_id FROM orders."order" o WHERE o.reference = m.reference)
    ORDER BY m.id LIMIT :many OFFSET :skipped""")


@router.get("/events/{event_id}/charges", summary="Export charges and refunds, oldest first")
async def charges(
    event_id: EventIdPath, request: Request, operator: Viewer, page: Page = 1, page_size: PageSize = 1000
) -> dict[str, Any]:
    state: State = request.app.state.deps
    bound = {"event_id": event_id, "many": page_size, "skipped": (page - 1) * page_size}
    async with state.book.db.connect() as connection:
        rows = [dict(row) for row in (await connection.execute(_CHARGES, bound)).mappings()]
    return {"page": page, "page_size": page_size, "charges": rows}
