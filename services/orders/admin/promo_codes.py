"""The operators' doors to prices: promo codes, their uses, and who changed what."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from services.orders.api.orders import Page, PageSize
from services.orders.api.schemas import PromoCodeAsk
from services.orders.pricing import admin
from services.orders.pricing.promo_codes import normalize_code
from services.orders.problems import UnknownPromoCode
from services.orders.state import State, state_of
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventIdPath, PlainText

log = logging.getLogger("onsale.orders")
router = APIRouter(prefix="/admin/orders/events/{event_id}", tags=["prices"])
CodePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Reason = Annotated[PlainText | None, Query()]


@router.put("/promo-codes/{code}", summary="Create or replace a promo code")
async def put_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, ask: PromoCodeAsk
) -> dict[str, Any]:
    state = state_of(request)
    changed = await admin.put_code(state.db, event_id, normalize_code(code), ask, actor=operator.name)
    return await _seen(state, event_id, code, changed=changed)


@router.delete("/promo-codes/{code}", summary="Deactivate a promo code")
async def stop_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, reason: Reason = None
) -> dict[str, Any]:
    """It takes nothing off any more; it stays in the list, and so do its uses."""
    state = state_of(request)
    changed = await admin.stop_code(state.db, event_id, normalize_code(code), actor=operator.name, reason=reason)
    return await _seen(state, event_id, code, changed=changed)


async def _seen(state: State, event_id: str, code: str, **more: Any) -> dict[str, Any]:
    found = await admin.codes(state.book.db, event_id, code=normalize_code(code), page=1, page_size=1)
    if not found:
        raise UnknownPromoCode
    return {**found[0], **more}


@router.get("/promo-codes", summary="List promo codes and their uses")
async def list_codes(
    request: Request, operator: Viewer, event_id: EventIdPath, page: Page = 1, page_size: PageSize = 50
) -> dict[str, Any]:
    found = await admin.codes(state_of(request).book.db, event_id, code=None, page=page, page_size=page_size)
    return {"page": page, "page_size": page_size, "promo_codes": found}


@router.get("/promo-codes/{code}", summary="Get a promo code")
async def get_code(request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath) -> dict[str, Any]:
    return await _seen(state_of(request), event_id, code)


@router.get("/promo-codes/{code}/uses", summary="List orders that used a promo code, newest first")
async def get_uses(
    request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath, page: Page = 1, page_size: PageSize = 50
) -> dict[str, Any]:
    db = state_of(request).book.db
    found = await admin.uses(db, event_id, normalize_code(code), page=page, page_size=page_size)
    return {"page": page, "page_size": page_size, "uses": found}


@router.get("/price-changes", summary="List changes of prices and promo codes, newest first")
async def get_changes(
    request: Request, operator: Viewer, event_id: EventIdPath, page: Page = 1, page_size: PageSize = 50
) -> dict[str, Any]:
    db = state_of(request).book.db
    found = await admin.changes(db, event_id, page=page, page_size=page_size)
    return {"page": page, "page_size": page_size, "changes": found}
