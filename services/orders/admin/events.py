"""The admin API of an event: its event file, what it charges, price changes, and the check of the invariants."""

from typing import Annotated

from fastapi import APIRouter, Query

from services.orders.audit import invariants
from services.orders.checkout.event_file import apply_event_file, check_amounts, read_event_file
from services.orders.state import OrdersState
from services.orders.tables import audit_log
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import AmountsChecked, EventFileApplied, InvariantReport
from shared.contracts.event_file import PRICE_MINOR_MAX, EventFile, PricePart
from shared.contracts.prices import PRICES_MAX
from shared.errors.problems import InvalidRequest
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, Viewer
from shared.web.request import DryRun, EventIdPath, ReasonQuery

Each = Annotated[list[Annotated[int, Query(ge=0, le=2 * PRICE_MINOR_MAX)]] | None, Query(max_length=PRICES_MAX)]
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
async def get_amounts(
    state: OrdersState, _operator: Viewer, event_id: EventIdPath, each: Each = None
) -> AmountsChecked:
    """Looks at the event's fees and promo codes, and at a ticket of each of these prices with all fees and taxes."""
    return await check_amounts(state.db, event_id, each or (), state.providers, state.prices)


@router.get("", operation_id="read_prices_event", summary="Get orders' part of the event file", tags=["admin"])
async def get_event(state: OrdersState, _operator: Viewer, event_id: EventIdPath) -> PricePart:
    """As it stands now: applying it changes nothing."""
    return await read_event_file(state.db, event_id)


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
