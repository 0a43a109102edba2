"""The operators' API: refund or cancel an order, the audit log; of an event its file, what it charges, price changes,
the share of its checkouts in the background, and the check of the invariants.

Every action on an order needs a reason and is written to the audit log.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query

from services.orders.audit import invariants
from services.orders.checkout.event_file import (
    apply_event_file,
    change_background_share,
    check_amounts,
    read_event_file,
)
from services.orders.checkout.requests import refuse_card_numbers
from services.orders.model.order import Order
from services.orders.model.rules import RefundSelection
from services.orders.model.view import admin_view
from services.orders.requests.requests import RefundRequest, cancel_by_hand, request_refund
from services.orders.state import OrdersState
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log
from shared.audit_log import Actor
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import (
    AdminOrder,
    AmountsChecked,
    BackgroundShareAnswer,
    BackgroundShareChanged,
    BackgroundShareRequest,
    EventFileApplied,
    InvariantReport,
    Reason,
    RefundBody,
)
from shared.contracts.event_file import EventFile, PricePart
from shared.contracts.event_parts.price_types import PRICE_MINOR_MAX
from shared.contracts.prices import PRICE_OF_TYPE, PRICES_MAX
from shared.errors.problems import InvalidRequest
from shared.postgres.pages import BeforeId
from shared.security.auth import AnAdmin, AnOperator, Operator, Viewer
from shared.web.request import DryRun, EventIdPath, IdempotencyKey, ReasonQuery, ReferencePath, idempotency_key

router = APIRouter(prefix="/admin/orders", tags=["admin"])
events = APIRouter(prefix="/admin/orders/events/{event_id}")
Each = Annotated[list[Annotated[int, Query(ge=0, le=2 * PRICE_MINOR_MAX)]] | None, Query(max_length=PRICES_MAX)]
EachOfType = Annotated[list[Annotated[str, Query(pattern=PRICE_OF_TYPE)]] | None, Query(max_length=PRICES_MAX)]
SubjectQuery = Annotated[str | None, Query(alias="subject", pattern=r"^(event|order|webhook):[A-Za-z0-9_-]{1,64}$")]


def actor_of(operator: Operator, body: Reason) -> Actor:
    """Raises `CardNumberRefused`: what an operator writes is kept in the audit log."""
    refuse_card_numbers(body)
    return Actor(operator.name, body.reason, role=operator.role)


async def act(
    state: OrdersState, reference: str, actor: Actor,
    action: Callable[[OrderStore, Order, Actor], Awaitable[object]],
) -> AdminOrder:  # fmt: skip
    """Does this to the order and answers how it is now."""
    await action(state.store, await state.store.require(reference), actor)
    return admin_view(await state.store.require(reference))


@router.post("/{reference}/refund", status_code=202, operation_id="refund_order", summary="Refund an order")
async def refund(
    reference: ReferencePath, body: RefundBody, state: OrdersState, operator: AnOperator, key: IdempotencyKey = None
) -> AdminOrder:
    """Needs an `Idempotency-Key` for an amount or for some tickets; all that is left is refunded once."""

    async def request_this(store: OrderStore, order: Order, actor: Actor) -> None:
        some = body.tickets
        needs_key = key is not None or some is not None or body.amount_minor is not None
        selection = RefundSelection(
            amount_minor=body.amount_minor, seats=tuple(some.seats) if some else (),
            ga=tuple((ga.section_id, ga.quantity, ga.type_id) for ga in some.ga) if some else (),
        )  # fmt: skip
        wanted = RefundRequest(selection=selection, actor=actor, return_to_sale=body.return_to_sale)
        await request_refund(store, order.reference, wanted, key=idempotency_key(key) if needs_key else None)

    return await act(state, reference, actor_of(operator, body), request_this)


@router.post(
    "/{reference}/cancel", status_code=202, operation_id="cancel_order", summary="Cancel an order that is not paid"
)
async def cancel(reference: ReferencePath, body: Reason, state: OrdersState, operator: AnOperator) -> AdminOrder:
    return await act(state, reference, actor_of(operator, body), cancel_by_hand)


@router.get(
    "/events/{event_id}/background-share",
    operation_id="read_background_share",
    summary="Get the share of checkouts processed in the background",
)
async def get_share(operator: Viewer, event_id: EventIdPath, state: OrdersState) -> BackgroundShareAnswer:
    state.prices.invalidate(event_id)
    percent = (await state.prices.rules(event_id)).background_percent
    return BackgroundShareAnswer(event_id=event_id, background_percent=percent)


@router.patch(
    "/events/{event_id}/background-share",
    operation_id="set_background_share",
    summary="Change the share of checkouts processed in the background",
)
async def change_share(
    operator: AnOperator, event_id: EventIdPath, body: BackgroundShareRequest, state: OrdersState
) -> BackgroundShareChanged:
    percent = body.background_percent
    changed = await change_background_share(
        state.db, event_id, percent, actor=operator.name, reason=body.reason, rules=state.prices
    )
    return BackgroundShareChanged(event_id=event_id, background_percent=percent, changed=changed)


@router.get("/changes", operation_id="list_audit_log", summary="List audit log entries")
async def list_changes(state: OrdersState, operator: Viewer, page: BeforeId, subject: SubjectQuery = None) -> AuditPage:
    """Newest first, of one subject or of all."""
    return await audit_log.read_page(state.db, page, subject=subject)


@events.put("", operation_id="apply_prices_event", summary="Apply an event file", tags=["admin"])
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


@events.get("/amounts", operation_id="check_amounts", summary="Check which amounts cannot be charged", tags=["admin"])
async def get_amounts(
    state: OrdersState, _operator: Viewer, event_id: EventIdPath, each: Each = None, each_of_type: EachOfType = None
) -> AmountsChecked:
    """Looks at the event's fees and promo codes, and at a ticket of each of these prices with all fees and taxes. Of
    another price type than the usual one a price is `2500:child` in `each_of_type`.
    """
    usual: list[tuple[int, str | None]] = [(minor, None) for minor in each or ()]
    parts = (one.partition(":") for one in each_of_type or ())
    typed = [(int(minor), type_id) for minor, _, type_id in parts]
    return await check_amounts(state.db, event_id, [*usual, *typed], state.providers, state.prices)


@events.get("", operation_id="read_prices_event", summary="Get orders' part of the event file", tags=["admin"])
async def get_event(state: OrdersState, _operator: Viewer, event_id: EventIdPath) -> PricePart:
    """As it stands now: applying it changes nothing."""
    return await read_event_file(state.db, event_id)


@events.get(
    "/price-changes",
    operation_id="list_price_changes",
    summary="List changes of prices and promo codes, newest first",
    tags=["prices"],
)
async def list_price_changes(state: OrdersState, operator: Viewer, event_id: EventIdPath, page: BeforeId) -> AuditPage:
    return await audit_log.read_page(state.db, page, subject=f"prices:{event_id}")


@events.get(
    "/audit", operation_id="check_orders_invariants", summary="Check the invariants of orders and money", tags=["admin"]
)
async def check_invariants(event_id: EventIdPath, state: OrdersState, operator: Viewer) -> InvariantReport:
    return await invariants.check_invariants(state.db, event_id)
