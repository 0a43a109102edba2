"""The admin API of promo codes, their uses, and the changes of an event's prices."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from services.orders.pricing import admin
from services.orders.state import state_of
from services.orders.tables import audit_log
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.prices import (
    PromoCodeAnswer,
    PromoCodeChanged,
    PromoCodePage,
    PromoCodeRequest,
    PromoCodeUsePage,
)
from shared.contracts.fields import TYPED_MAX, NewCode, code_as_shown, code_key
from shared.postgres.pages import BeforeId, PageRequest, PageSizeQuery
from shared.security.auth import AnOperator, Viewer
from shared.web.parameters import EventIdPath, ReasonQuery, ReferenceQuery

router = APIRouter(prefix="/admin/orders/events/{event_id}", tags=["prices"])
CodePath = Annotated[NewCode, Path(max_length=TYPED_MAX, description="Percent-encoded, if it is not plain.")]
CodeQuery = Annotated[NewCode | None, Query(max_length=TYPED_MAX)]


@router.put("/promo-codes/{code}", summary="Create or replace a promo code")
async def put_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, body: PromoCodeRequest
) -> PromoCodeChanged:
    """A deactivated code is active again."""
    state = state_of(request)
    return await admin.put_code(
        state.db, event_id, code_as_shown(code), body, actor=operator.name, providers=state.providers
    )


@router.delete("/promo-codes/{code}", summary="Deactivate a promo code")
async def deactivate_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, reason: ReasonQuery = None
) -> PromoCodeChanged:
    """It takes nothing off any more. It stays in the list, and so do its uses."""
    db = state_of(request).db
    return await admin.deactivate_code(db, event_id, code_key(code), actor=operator.name, reason=reason)


@router.get("/promo-codes", summary="List promo codes and their uses")
async def list_codes(
    request: Request, operator: Viewer, event_id: EventIdPath, after: CodeQuery = None, page_size: PageSizeQuery = 50
) -> PromoCodePage:
    """In alphabetical order."""
    page = PageRequest(request.url, after and code_key(after), page_size, newest_first=False)
    return await admin.list_codes(state_of(request).store.db, event_id, page)


@router.get("/promo-codes/{code}", summary="Get a promo code")
async def get_code(request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath) -> PromoCodeAnswer:
    return await admin.get_code(state_of(request).store.db, event_id, code_key(code))


@router.get("/promo-codes/{code}/uses", summary="List orders that used a promo code, newest first")
async def list_uses(
    request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath, before: ReferenceQuery = None,
    page_size: PageSizeQuery = 50,
) -> PromoCodeUsePage:  # fmt: skip
    page = PageRequest(request.url, before, page_size)
    return await admin.list_redemptions(state_of(request).store.db, event_id, code_key(code), page)


@router.get("/price-changes", summary="List changes of prices and promo codes, newest first")
async def list_changes(request: Request, operator: Viewer, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    db = state_of(request).store.db
    return await audit_log.read_page(db, page, subject=f"prices:{event_id}")
