"""The admin API of an event: its event file, what it charges, its promo codes with their uses, and price changes."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from services.orders.checkout.apply_event_file import apply_event_file, read_event_file
from services.orders.pricing import admin
from services.orders.state import state_of
from services.orders.tables import audit_log
from services.orders.tickets.show import printed_texts
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.prices import (
    AmountsChecked,
    EventFileApplied,
    PromoCodeAnswer,
    PromoCodeChanged,
    PromoCodePage,
    PromoCodeRequest,
    PromoCodeUsePage,
)
from shared.contracts.event_file import PRICE_MINOR_MAX, EventFile, PricePart
from shared.contracts.fields import TYPED_MAX, NewCode, code_as_shown, code_key
from shared.contracts.prices import PRICES_MAX
from shared.errors.problems import InvalidRequest
from shared.postgres.pages import BeforeId, PageRequest, PageSizeQuery
from shared.security.auth import AnAdmin, AnOperator, Viewer
from shared.web.request import DryRun, EventIdPath, ReasonQuery, ReferenceQuery

Each = Annotated[list[Annotated[int, Query(ge=0, le=2 * PRICE_MINOR_MAX)]] | None, Query(max_length=PRICES_MAX)]
CodePath = Annotated[NewCode, Path(max_length=TYPED_MAX, description="Percent-encoded, if it is not plain.")]
CodeQuery = Annotated[NewCode | None, Query(max_length=TYPED_MAX)]
router = APIRouter(prefix="/admin/orders/events/{event_id}")


@router.put("", summary="Apply an event file", tags=["admin"])
async def put_event(
    request: Request,
    operator: AnAdmin,
    event_id: EventIdPath,
    file: EventFile,
    dry_run: DryRun = False,
    reason: ReasonQuery = None,
) -> EventFileApplied:
    """It holds for orders from now on; an order keeps the price it was placed at. With `dry_run` everything is checked
    and nothing is changed.
    """
    if file.event_id != event_id:
        raise InvalidRequest("event_id in the file and in the path differ. Send the file to its own event's path.")
    state = state_of(request)
    applied = await apply_event_file(
        state.db, file, actor=operator.name, reason=reason, dry_run=dry_run, rules=state.price_rules,
        shares=state.background_share, providers=state.providers,
    )  # fmt: skip
    warnings = await state.pdf_renderer.warnings(printed_texts(file))
    return applied.model_copy(update={"warnings": warnings})


@router.get("/amounts", summary="Check which amounts cannot be charged", tags=["admin"])
async def check_amounts(
    request: Request, _operator: Viewer, event_id: EventIdPath, each: Each = None
) -> AmountsChecked:
    """Looks at the event's fees and promo codes, and at a ticket of each of these prices with all fees and taxes."""
    state = state_of(request)
    return await admin.check_stored_amounts(state.store.db, event_id, each or (), state.providers)


@router.get("", summary="Get orders' part of the event file", tags=["admin"])
async def get_event(request: Request, _operator: Viewer, event_id: EventIdPath) -> PricePart:
    """As it stands now: applying it changes nothing."""
    return await read_event_file(state_of(request).db, event_id)


@router.put("/promo-codes/{code}", summary="Create or replace a promo code", tags=["prices"])
async def put_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, body: PromoCodeRequest
) -> PromoCodeChanged:
    """A deactivated code is active again."""
    state = state_of(request)
    return await admin.put_code(
        state.db, event_id, code_as_shown(code), body, actor=operator.name, providers=state.providers
    )


@router.delete("/promo-codes/{code}", summary="Deactivate a promo code", tags=["prices"])
async def deactivate_code(
    request: Request, operator: AnOperator, event_id: EventIdPath, code: CodePath, reason: ReasonQuery = None
) -> PromoCodeChanged:
    """It takes nothing off any more. It stays in the list, and so do its uses."""
    db = state_of(request).db
    return await admin.deactivate_code(db, event_id, code_key(code), actor=operator.name, reason=reason)


@router.get("/promo-codes", summary="List promo codes and their uses", tags=["prices"])
async def list_codes(
    request: Request, operator: Viewer, event_id: EventIdPath, after: CodeQuery = None, page_size: PageSizeQuery = 50
) -> PromoCodePage:
    """In alphabetical order."""
    page = PageRequest(request.url, after and code_key(after), page_size, newest_first=False)
    return await admin.list_codes(state_of(request).store.db, event_id, page)


@router.get("/promo-codes/{code}", summary="Get a promo code", tags=["prices"])
async def get_code(request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath) -> PromoCodeAnswer:
    return await admin.get_code(state_of(request).store.db, event_id, code_key(code))


@router.get("/promo-codes/{code}/uses", summary="List orders that used a promo code, newest first", tags=["prices"])
async def list_uses(
    request: Request, operator: Viewer, event_id: EventIdPath, code: CodePath, before: ReferenceQuery = None,
    page_size: PageSizeQuery = 50,
) -> PromoCodeUsePage:  # fmt: skip
    page = PageRequest(request.url, before, page_size)
    return await admin.list_redemptions(state_of(request).store.db, event_id, code_key(code), page)


@router.get("/price-changes", summary="List changes of prices and promo codes, newest first", tags=["prices"])
async def list_changes(request: Request, operator: Viewer, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    db = state_of(request).store.db
    return await audit_log.read_page(db, page, subject=f"prices:{event_id}")
