"""The admin API of an event: its event file, what it charges, its promo codes with their uses, price changes, and the
check of the invariants.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from services.orders.audit import invariants
from services.orders.checkout.event_file import apply_event_file, read_event_file
from services.orders.pricing import admin
from services.orders.state import OrdersState
from services.orders.tables import audit_log
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import InvariantReport
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


@router.put("", operation_id="apply_prices_event", summary="Apply an event file", tags=["admin"])
async def put_event(
    state: OrdersState,
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
    applied = await apply_event_file(
        state.db, file, actor=operator.name, reason=reason, dry_run=dry_run, rules=state.prices,
        providers=state.providers,
    )  # fmt: skip
    warnings = await state.papers.warnings_of(file) if state.papers.warnings_of else []
    return applied.model_copy(update={"warnings": warnings})


@router.get("/amounts", operation_id="check_amounts", summary="Check which amounts cannot be charged", tags=["admin"])
async def check_amounts(
    state: OrdersState, _operator: Viewer, event_id: EventIdPath, each: Each = None
) -> AmountsChecked:
    """Looks at the event's fees and promo codes, and at a ticket of each of these prices with all fees and taxes."""
    return await admin.check_stored_amounts(state.db, event_id, each or (), state.providers)


@router.get("", operation_id="read_prices_event", summary="Get orders' part of the event file", tags=["admin"])
async def get_event(state: OrdersState, _operator: Viewer, event_id: EventIdPath) -> PricePart:
    """As it stands now: applying it changes nothing."""
    return await read_event_file(state.db, event_id)


@router.put(
    "/promo-codes/{code}", operation_id="put_promo_code", summary="Create or replace a promo code", tags=["prices"]
)
async def put_code(
    state: OrdersState, operator: AnOperator, event_id: EventIdPath, code: CodePath, body: PromoCodeRequest
) -> PromoCodeChanged:
    """A deactivated code is active again."""
    return await admin.put_code(
        state.db, event_id, code_as_shown(code), body, actor=operator.name, providers=state.providers
    )


@router.delete(
    "/promo-codes/{code}", operation_id="deactivate_promo_code", summary="Deactivate a promo code", tags=["prices"]
)
async def deactivate_code(
    state: OrdersState, operator: AnOperator, event_id: EventIdPath, code: CodePath, reason: ReasonQuery = None
) -> PromoCodeChanged:
    """It takes nothing off any more. It stays in the list, and so do its uses."""
    return await admin.deactivate_code(state.db, event_id, code_key(code), actor=operator.name, reason=reason)


@router.get("/promo-codes", operation_id="list_promo_codes", summary="List promo codes and their uses", tags=["prices"])
async def list_codes(
    request: Request,
    state: OrdersState,
    operator: Viewer,
    event_id: EventIdPath,
    after: CodeQuery = None,
    page_size: PageSizeQuery = 50,
) -> PromoCodePage:
    """In alphabetical order."""
    page = PageRequest(request.url, after and code_key(after), page_size, newest_first=False)
    return await admin.list_codes(state.db, event_id, page)


@router.get("/promo-codes/{code}", operation_id="read_promo_code", summary="Get a promo code", tags=["prices"])
async def get_code(state: OrdersState, operator: Viewer, event_id: EventIdPath, code: CodePath) -> PromoCodeAnswer:
    return await admin.get_code(state.db, event_id, code_key(code))


@router.get(
    "/promo-codes/{code}/uses",
    operation_id="list_promo_code_uses",
    summary="List orders that used a promo code, newest first",
    tags=["prices"],
)
async def list_uses(
    request: Request, state: OrdersState, operator: Viewer, event_id: EventIdPath, code: CodePath,
    before: ReferenceQuery = None, page_size: PageSizeQuery = 50,
) -> PromoCodeUsePage:  # fmt: skip
    page = PageRequest(request.url, before, page_size)
    return await admin.list_redemptions(state.db, event_id, code_key(code), page)


@router.get(
    "/price-changes",
    operation_id="list_price_changes",
    summary="List changes of prices and promo codes, newest first",
    tags=["prices"],
)
async def list_changes(state: OrdersState, operator: Viewer, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    return await audit_log.read_page(state.db, page, subject=f"prices:{event_id}")


@router.get(
    "/audit", operation_id="check_orders_invariants", summary="Check the invariants of orders and money", tags=["admin"]
)
async def check_invariants(event_id: EventIdPath, state: OrdersState, operator: Viewer) -> InvariantReport:
    return await invariants.check_invariants(state.db, event_id)
