"""The operators' doors to many orders: find, export, settle, and check the promises about money over the ledger."""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime

from services.orders.admin.exports import orders_csv
from services.orders.admin.settlement import days, reconcile_with_provider, settlement
from services.orders.api.orders import PageSize
from services.orders.audit import invariants
from services.orders.order.search import Search, find
from services.orders.state import state_of
from shared.security.auth import AnOperator, Viewer
from shared.web.api_document import file_of
from shared.web.fields import EventId, EventIdPath
from shared.web.routes import REFERENCE

router = APIRouter(prefix="/admin/orders", tags=["admin"])
Status = Annotated[str | None, Query(pattern="^[a-z_]{1,32}$")]
Wanted = Annotated[str | None, Query(min_length=2, max_length=200, pattern=r"^[^\x00]*$")]
After = Annotated[str | None, Query(pattern=f"^{REFERENCE}$")]
Zone = Annotated[str, Query(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")]


@router.get("", summary="Search orders")
async def search(
    request: Request, operator: AnOperator, event_id: EventId | None = None, status: Status = None, q: Wanted = None,
    since: AwareDatetime | None = None, until: AwareDatetime | None = None, after: After = None,
    page_size: PageSize = 50,
) -> dict[str, Any]:  # fmt: skip
    """`after` is the `next_after` of the page before. Names match in part, everything else exactly."""
    asked = Search(
        q=q, event_id=event_id, status=status, since=since, until=until, after=after, page_size=page_size
    )  # fmt: skip
    return await find(state_of(request), asked)


@router.get(
    "/export.csv",
    summary="Export an event's orders as CSV",
    responses=file_of("text/csv"),
    response_class=Response,
)
async def export(request: Request, operator: AnOperator, event_id: EventId) -> StreamingResponse:
    pages = orders_csv(state_of(request).book.db, event_id)
    named = {"content-disposition": f'attachment; filename="{event_id}-orders.csv"', "cache-control": "no-store"}
    return StreamingResponse(pages, media_type="text/csv; charset=utf-8", headers=named)


@router.get("/settlement", summary="Show settlement by provider and day")
async def settle(
    request: Request, operator: Viewer, first: Annotated[date, Query(alias="from")],
    last: Annotated[date, Query(alias="to")], tz: Zone = "UTC",
    compared: Annotated[bool, Query(alias="compare")] = False,
) -> dict[str, Any]:  # fmt: skip
    """Days begin and end in `tz`, and both are included. `compare` asks the providers for their own lists."""
    state, asked = state_of(request), days(first, last, tz, compare=compared)
    answer = await settlement(state.book.db, asked)
    if compared:
        answer["compared"] = await reconcile_with_provider(state.book.db, state.providers, asked)
    return answer


@router.get("/events/{event_id}/audit", summary="Check the invariants of orders and money")
async def check(event_id: EventIdPath, request: Request, operator: Viewer) -> dict[str, Any]:
    db = state_of(request).db
    return {
        "confirmed": await invariants.confirmed(db, event_id),
        "invariants": await invariants.check(db, event_id),
    }
