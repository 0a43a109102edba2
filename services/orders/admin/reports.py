"""The admin API of reports: charges, settlement, exports of orders and tickets, and the check of the invariants."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from services.orders.audit import invariants
from services.orders.reports import exports
from services.orders.reports.settlement import date_range, list_charges, settlement
from services.orders.state import state_of
from services.orders.tickets.tickets import TicketSigner
from shared.contracts.admin.order_reports import ChargePage, OrdersFlow, OrdersHistory, ScannerTickets, Settlement
from shared.contracts.admin.orders import InvariantReport
from shared.contracts.fields import EventId
from shared.postgres.pages import IdQuery, LongPageSizeQuery, PageRequest
from shared.security.auth import AnOperator, Viewer
from shared.web.api_document import file_of
from shared.web.request import EventIdPath, TimeStepsQuery

router = APIRouter(prefix="/admin/orders", tags=["admin"])
TimeZone = Annotated[str, Query(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")]
TicketStatus = Annotated[Literal["valid", "void"] | None, Query(description="Only tickets of this status")]


@router.get("/events/{event_id}/charges", summary="Export charges and refunds, oldest first")
async def get_charges(
    event_id: EventIdPath, request: Request, operator: Viewer, after: IdQuery = None,
    page_size: LongPageSizeQuery = 1000,
) -> ChargePage:  # fmt: skip
    page = PageRequest(request.url, after, page_size, newest_first=False)
    return await list_charges(state_of(request).store.db, event_id, page)


@router.get("/settlement", summary="Show settlement by provider and day", response_model_exclude_unset=True)
async def get_settlement(
    request: Request, operator: Viewer, first: Annotated[date, Query(alias="from")],
    last: Annotated[date, Query(alias="to")], tz: TimeZone = "UTC", compare: bool = False,
) -> Settlement:  # fmt: skip
    """Days begin and end in the time zone `tz`, and both are included. `compare` reads the providers' own lists."""
    state, days = state_of(request), date_range(first, last, tz, compare=compare)
    return await settlement(state.store.db, days, compare_with=state.providers if compare else None)


@router.get("/events/{event_id}/audit", summary="Check the invariants of orders and money")
async def check_invariants(event_id: EventIdPath, request: Request, operator: Viewer) -> InvariantReport:
    return await invariants.check_invariants(state_of(request).db, event_id)


@router.get(
    "/export.csv",
    summary="Export an event's orders as CSV",
    responses=file_of("text/csv"),
    response_class=Response,
)
async def export_orders(request: Request, operator: AnOperator, event_id: EventId) -> StreamingResponse:
    return _csv(exports.orders_csv(state_of(request).store.db, event_id), f"{event_id}-orders.csv")


@router.get(
    "/events/{event_id}/tickets.json",
    summary="Export the tickets of an event for scanners",
    responses={200: {"model": ScannerTickets}},
)
async def export_tickets_json(
    event_id: EventIdPath, request: Request, operator: AnOperator, status: TicketStatus = None
) -> StreamingResponse:
    """It has the secrets of rotating codes: keep it on scanners only."""
    state = state_of(request)
    parts = exports.tickets_json(state.store.db, TicketSigner(state.settings), event_id, status)
    return StreamingResponse(parts, media_type="application/json", headers={"cache-control": "no-store"})


@router.get(
    "/events/{event_id}/tickets.csv",
    summary="Export the tickets of an event as CSV",
    responses=file_of("text/csv"),
    response_class=Response,
)
async def export_tickets_csv(
    event_id: EventIdPath, request: Request, operator: AnOperator, status: TicketStatus = None
) -> StreamingResponse:
    state = state_of(request)
    parts = exports.tickets_csv(state.store.db, TicketSigner(state.settings), event_id, status)
    return _csv(parts, f"tickets-{event_id}.csv")


@router.get("/events/{event_id}/flow", summary="Get the flow of fans through orders")
async def get_flow(event_id: EventIdPath, request: Request, operator: Viewer) -> OrdersFlow:
    """Counted in the database, at most once a second for all who ask."""
    return await state_of(request).flows.flow(event_id)


@router.get("/events/{event_id}/flow/history", summary="Get orders by time, tickets by section and money")
async def get_flow_history(
    event_id: EventIdPath, request: Request, operator: Viewer, steps: TimeStepsQuery
) -> OrdersHistory:
    return await state_of(request).flows.history(event_id, steps)


def _csv(parts: AsyncIterator[bytes], filename: str) -> StreamingResponse:
    headers = {"content-disposition": f'attachment; filename="{filename}"', "cache-control": "no-store"}
    return StreamingResponse(parts, media_type="text/csv; charset=utf-8", headers=headers)
