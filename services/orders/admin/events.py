"""The admin API that applies an event file to orders and reads it back."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from services.orders.checkout.apply_event_file import apply_event_file, read_event_file
from services.orders.pricing.admin import check_stored_amounts
from services.orders.state import state_of
from services.orders.tickets.show import printed_texts
from shared.contracts.admin.prices import AmountsChecked, EventFileApplied
from shared.contracts.event_file import PRICE_MINOR_MAX, EventFile, PricePart
from shared.contracts.prices import PRICES_MAX
from shared.errors.problems import InvalidRequest
from shared.security.auth import AnAdmin, Viewer
from shared.web.parameters import DryRun, EventIdPath, ReasonQuery

Each = Annotated[list[Annotated[int, Query(ge=0, le=2 * PRICE_MINOR_MAX)]] | None, Query(max_length=PRICES_MAX)]
router = APIRouter(prefix="/admin/orders/events/{event_id}", tags=["admin"])


@router.put("", summary="Apply an event file")
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


@router.get("/amounts", summary="Check which amounts cannot be charged")
async def check_amounts(
    request: Request, _operator: Viewer, event_id: EventIdPath, each: Each = None
) -> AmountsChecked:
    """Looks at the event's fees and promo codes, and at a ticket of each of these prices with all fees and taxes."""
    state = state_of(request)
    return await check_stored_amounts(state.store.db, event_id, each or (), state.providers)


@router.get("", summary="Get orders' part of the event file")
async def get_event(request: Request, _operator: Viewer, event_id: EventIdPath) -> PricePart:
    """As it stands now: applying it changes nothing."""
    return await read_event_file(state_of(request).db, event_id)
