"""Operators' API for an event's stock: block, unblock, resize, allotments, the stock report, its audit log."""

from typing import Annotated

from fastapi import APIRouter, Path

from services.inventory import tables
from services.inventory.catalogue.apply_event_file import resize
from services.inventory.state import StateDep
from services.inventory.stock.allotments import open_allotment, upsert
from services.inventory.stock.blocking import block_places, unblock_places
from services.inventory.stock.report import stock_report
from shared.audit_log import of_event
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.inventory import (
    AllotmentChange,
    CapacityChange,
    ChangeReason,
    PlacesChange,
    StockChanged,
    StockReport,
)
from shared.postgres.pages import BeforeId
from shared.routes import EVENT_ID
from shared.security.auth import AnOperator, Viewer
from shared.web.request import EventIdPath, SectionIdPath

router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
AllotmentIdPath = Annotated[str, Path(pattern=f"^{EVENT_ID}$")]


@router.post("/seats/block", operation_id="block_places", summary="Block seats and GA places")
async def block(operator: AnOperator, state: StateDep, event_id: EventIdPath, places: PlacesChange) -> StockChanged:
    """All or none: if some are held or sold, the problem names them and nothing is changed."""
    return await state.stock_editor.apply(
        event_id, "block", places, lambda change: block_places(change, places), by=operator.name
    )


@router.post("/seats/unblock", operation_id="unblock_places", summary="Unblock seats and GA places")
async def unblock(operator: AnOperator, state: StateDep, event_id: EventIdPath, places: PlacesChange) -> StockChanged:
    return await state.stock_editor.apply(
        event_id, "unblock", places, lambda change: unblock_places(change, places), by=operator.name
    )


@router.post(
    "/sections/{section_id}/resize", operation_id="resize_section", summary="Change the capacity of a GA section"
)
async def post_resize(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, section_id: SectionIdPath, wanted: CapacityChange
) -> StockChanged:
    """Refused below what is held, sold and blocked."""
    return await state.stock_editor.apply(
        event_id, "resize", wanted, lambda change: resize(change, section_id, wanted.capacity), by=operator.name
    )


@router.put("/allotments/{allotment_id}", operation_id="put_allotment", summary="Create or change an allotment")
async def put_allotment(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, allotment_id: AllotmentIdPath, wanted: AllotmentChange
) -> StockChanged:
    """Idempotent. The places of an open allotment cannot be changed."""
    return await state.stock_editor.apply(
        event_id, "allot", wanted, lambda change: upsert(change, allotment_id, wanted), by=operator.name
    )


@router.post("/allotments/{allotment_id}/open", operation_id="open_allotment", summary="Open an allotment")
async def post_open(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, allotment_id: AllotmentIdPath, reason: ChangeReason
) -> StockChanged:
    """Puts its places on sale, once; opening an open allotment changes nothing."""
    return await state.stock_editor.apply(
        event_id, "open", reason, lambda change: open_allotment(change, allotment_id), by=operator.name
    )


@router.get("/stock", operation_id="read_stock", summary="Get the stock report")
async def get_stock(operator: Viewer, state: StateDep, event_id: EventIdPath) -> StockReport:
    return await stock_report(state.db, event_id)


@router.get("/changes", operation_id="list_inventory_changes", summary="List audit log entries")
async def list_changes(operator: Viewer, state: StateDep, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    """Newest first."""
    state.catalogue.layout(event_id)
    return await tables.audit_log.read_page(state.autocommit_db, page, subject=of_event(event_id))
