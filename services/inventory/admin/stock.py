"""What operators do with an event's stock: block, unblock, resize, keep aside, open; and what they see and export.

Every change is made in the ledger first and audited there; then the gate is told, which goes on selling meanwhile.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from services.inventory.api.schemas import PAGE, PAGE_SIZE
from services.inventory.catalogue.resize import resize
from services.inventory.redis_stock.push import push_stock
from services.inventory.state import InRoom, State
from services.inventory.stock import blocking
from services.inventory.stock.allotments import open_now, upsert
from services.inventory.stock.change import StockChange, changes, stock_change
from services.inventory.stock.exports import sales_csv, seats_csv
from services.inventory.stock.report import stock_report
from shared.contracts.allotments import AllotmentBody, Places
from shared.contracts.event_file import SEATS_PER_EVENT_MAX
from shared.runtime.logging import data
from shared.security.auth import AnOperator, Operator, Viewer
from shared.web.api_document import file_of
from shared.web.fields import Body, EventIdPath, PlainText, SectionIdPath
from shared.web.routes import EVENT_ID

log = logging.getLogger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
AllotmentIdPath = Annotated[str, Path(pattern=f"^{EVENT_ID}$")]


class Why(Body):
    """Kept in the audit. With `version`, as the stock report shows it, the change is refused if another came first."""

    reason: PlainText | None = None
    version: int | None = Field(None, ge=0, le=2**62)


class PlacesAsk(Places, Why):
    """Places to block or to unblock."""


class ResizeAsk(Why):
    """How many places the section shall have."""

    capacity: int = Field(ge=0, le=SEATS_PER_EVENT_MAX)


class AllotmentAsk(AllotmentBody, Why):
    """An allotment as it shall be."""


async def _change(
    inventory: State,
    event_id: str,
    operator: Operator,
    action: str,
    why: Why,
    work: Callable[[StockChange], Awaitable[Any]],
) -> dict[str, Any]:
    """One change: ledger, audit, gate. What it answers is the same for one that changed nothing."""
    async with stock_change(
        inventory.db, event_id, actor=operator.name, action=action, reason=why.reason, version=why.version
    ) as change:
        await work(change)
    changed = bool(change.touched or change.detail)
    if changed:
        log.info(
            "stock.changed", extra=data(event_id=event_id, action=action, by=operator.name, version=change.version)
        )
        await push_stock(inventory.db, inventory.redis_stock, event_id, change.touched)
        await inventory.catalogue.refresh()
    return {"event_id": event_id, "changed": changed, "version": change.version, "seats": len(change.touched.seats)}


@router.post("/seats/block", summary="Block seats and GA places")
async def block(operator: AnOperator, inventory: InRoom, event_id: EventIdPath, ask: PlacesAsk) -> dict[str, Any]:
    """All of them or none: held and sold ones are named, and then nothing was changed."""

    async def work(change: StockChange) -> None:
        await blocking.block(change, await change.spots(ask))

    return await _change(inventory, event_id, operator, "block", ask, work)


@router.post("/seats/unblock", summary="Unblock seats and GA places")
async def unblock(operator: AnOperator, inventory: InRoom, event_id: EventIdPath, ask: PlacesAsk) -> dict[str, Any]:
    async def work(change: StockChange) -> None:
        await blocking.unblock(change, await change.spots(ask))

    return await _change(inventory, event_id, operator, "unblock", ask, work)


@router.post("/sections/{section_id}/resize", summary="Change the capacity of a GA section")
async def post_resize(
    operator: AnOperator, inventory: InRoom, event_id: EventIdPath, section_id: SectionIdPath, ask: ResizeAsk
) -> dict[str, Any]:
    """Never below what is held, sold and blocked."""

    async def work(change: StockChange) -> None:
        await resize(change, section_id, ask.capacity)

    return await _change(inventory, event_id, operator, "resize", ask, work)


@router.put("/allotments/{allotment_id}", summary="Create an allotment")
async def put_allotment(
    operator: AnOperator, inventory: InRoom, event_id: EventIdPath, allotment_id: AllotmentIdPath, ask: AllotmentAsk
) -> dict[str, Any]:
    """Makes the allotment, or makes it what is asked for; again, nothing changes. An open one stays as it is."""

    async def work(change: StockChange) -> None:
        await upsert(change, allotment_id, ask)

    return await _change(inventory, event_id, operator, "allot", ask, work)


@router.post("/allotments/{allotment_id}/open", summary="Release an allotment")
async def open_allotment(
    operator: AnOperator, inventory: InRoom, event_id: EventIdPath, allotment_id: AllotmentIdPath, why: Why
) -> dict[str, Any]:
    """Once; opening an open one changes nothing."""

    async def work(change: StockChange) -> None:
        await open_now(change, allotment_id)

    return await _change(inventory, event_id, operator, "open", why, work)


@router.get("/stock", summary="Show the stock report")
async def get_stock(operator: Viewer, inventory: InRoom, event_id: EventIdPath) -> dict[str, Any]:
    return await stock_report(inventory.db, event_id)


@router.get("/changes", summary="List stock changes, newest first")
async def get_changes(
    operator: Viewer, inventory: InRoom, event_id: EventIdPath,
    page: Annotated[PAGE, Query()] = 1, page_size: Annotated[PAGE_SIZE, Query()] = 50,
) -> dict[str, Any]:  # fmt: skip
    inventory.catalogue.layout(event_id)
    async with inventory.reading.connect() as connection:
        found = await changes(connection, event_id, page=page, page_size=page_size)
    more = f"/admin/inventory/events/{event_id}/changes?page={page + 1}&page_size={page_size}"
    return {"changes": found[:page_size], "next": more if len(found) > page_size else None}


@router.get(
    "/{what}.csv", summary="Export seats or sales as CSV", responses=file_of("text/csv"), response_class=Response
)
async def get_csv(
    operator: AnOperator, inventory: InRoom, event_id: EventIdPath, what: Literal["seats", "sales"]
) -> StreamingResponse:
    layout = inventory.catalogue.layout(event_id)
    pages: AsyncIterator[bytes] = (seats_csv if what == "seats" else sales_csv)(inventory.reading, layout)
    named = {"content-disposition": f'attachment; filename="{event_id}-{what}.csv"', "cache-control": "no-store"}
    return StreamingResponse(pages, media_type="text/csv; charset=utf-8", headers=named)
