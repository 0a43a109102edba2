"""Fans' API for reservations: reserve (the fast route), get, extend, release all or a part."""

import hashlib
import math
import os
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from services.inventory.api.auth import require_current_epoch, require_owner
from services.inventory.api.schemas import (
    BestAvailable,
    KeepBody,
    ReservationView,
    ReserveBody,
    reservation_body,
    reservation_view,
    row_body,
)
from services.inventory.catalogue.layout import Layout
from services.inventory.reservations.repository import ReservationRow
from services.inventory.reservations.reserve import ReservationRequest, Reserved, ReserveResult
from services.inventory.reservations.selection import Selection, content_hash
from services.inventory.state import State, StateDep
from shared.errors.problems import (
    IdempotencyKeyMalformed,
    LimitExceeded,
    SoldOut,
    TooManyRequests,
)
from shared.runtime.clock import now_ms
from shared.security.client_address import client_address
from shared.security.tokens import Pass
from shared.web.fast_routes import JSON, NO_STORE, QUIET_KEY, FastRoute, answer, read_model
from shared.web.parameters import EventIdPath

router = APIRouter(tags=["reservations"])
ReservationIdPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class Reserve:
    """`POST /events/{event_id}/reservations`: an ASGI endpoint, which is twice as fast as a function endpoint."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        connection = HTTPConnection(scope)
        state: State = scope["app"].state.deps
        layout = state.catalogue.layout(scope["path_params"]["event_id"])
        admission = require_current_epoch(await state.authenticator.admitted(connection, layout.event_id), layout)
        body = await read_model(receive, ReserveBody)
        request = build_request(layout, admission, body, connection.headers.get("idempotency-key"))
        result = result_body(await _reserve(state, request, scope))
        await answer(send, 201, orjson.dumps(result), JSON, NO_STORE)


async def _reserve(state: State, request: ReservationRequest, scope: Scope) -> ReserveResult:
    """Reserves within the limits per fan and per client address. Raises `TooManyRequests`."""
    wait_s = state.given_back.wait_s((request.layout.event_id, request.holder), now_s=time.monotonic())
    if wait_s > 0:
        detail = "You gave tickets back several times just now. Wait before you reserve again."
        raise TooManyRequests(detail, retry_after_s=math.ceil(wait_s))
    address = client_address(scope, state.settings.trusted_proxies)
    with state.address_holds.counted(address, request.reservation_id, lasts_s=request.layout.hold_ttl_s) as counted:
        made = await state.batcher_of(request.layout.event_id).reserve(request)
        is_live = made.is_live if isinstance(made, ReservationRow) else True
        if is_live and made.reservation_id == request.reservation_id:  # else an earlier hold of this fan
            counted.is_held = True
    return made


def build_request(layout: Layout, admission: Pass, body: ReserveBody, key: str | None) -> ReservationRequest:
    """The request for the batcher. The id is derived from holder and Idempotency-Key, so a repeat finds its
    reservation.
    """
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise IdempotencyKeyMalformed("Send 1 to 200 characters of A-Z a-z 0-9 . _ - : as the Idempotency-Key.")
    selection = layout.select(body.seats, body.tickets())
    redis_request, stock_hash = _redis_request(layout, selection, body.best_available)
    quantity = body.best_available.quantity if body.best_available else selection.quantity
    allowed = min(layout.tickets_per_order, admission.qty_max or layout.tickets_per_order)
    if quantity > allowed:
        raise LimitExceeded(f"tickets_per_order is {allowed}.", limit="tickets_per_order", allowed=allowed)
    return ReservationRequest(
        layout=layout,
        reservation_id=reservation_id_of_key(layout.event_id, admission.holder, key) if key else random_id(),
        holder=admission.holder,
        jti=admission.jti,
        selection=selection,
        redis_request=redis_request,
        stock_hash=stock_hash,
        body_hash=content_hash(body.email or "", str(body.reminders)),
        has_key=key is not None,
        lane=admission.lane,
        join_seq=admission.join_seq,
        email=body.email,
        reminders=body.reminders,
        pass_epoch=admission.epoch,
    )


def _redis_request(layout: Layout, selection: Selection, best: BestAvailable | None) -> tuple[dict[str, Any], str]:
    """What the hold script reads, and its hash."""
    if best is None:
        listed = selection.text()
        return {"selection": listed}, content_hash(listed)
    price_blocks = layout.price_blocks(section_id=best.section_id, max_price_minor=best.max_price_minor)
    if not price_blocks:
        raise SoldOut("No section has this price or a lower one. Raise max_price_minor.")
    places = [
        block[:1] if not block.width else (block.section_id, block.first, block.last, block.width)
        for block in price_blocks
    ]
    tidy = layout.avoid_single_seats
    criteria = {"quantity": best.quantity, "price_blocks": places, "split": best.split, "tidy": tidy}
    return {"best": criteria}, content_hash("best", best.model_dump_json())


def random_id() -> str:
    """Unguessable, and rising with time so that the primary key's index grows at its end."""
    return f"{now_ms():012x}{next(_suffixes)}"


def _random_suffixes() -> Iterator[str]:
    """Ten random bytes each, read from the kernel for many at once: the system call costs more than the rest."""
    while True:
        pool = os.urandom(10 * 256).hex()
        for start in range(0, len(pool), 20):
            yield pool[start : start + 20]


_suffixes = _random_suffixes()


def reservation_id_of_key(event_id: str, holder: str, key: str) -> str:
    return hashlib.blake2b("\0".join((event_id, holder, key)).encode(), digest_size=16).hexdigest()


def result_body(result: ReserveResult) -> dict[str, Any]:
    if not isinstance(result, Reserved):
        return row_body(result)
    request = result.request
    return reservation_body(
        result.reservation_id, status="pending_payment", reserved_until_ms=result.until_ms,
        currency=request.layout.currency, selection=request.selection, total_minor=request.selection.total_minor,
    )  # fmt: skip


async def own_reservation(
    request: Request, state: StateDep, event_id: EventIdPath, reservation_id: ReservationIdPath
) -> ReservationRow:
    """The holder's own reservation of this event, in any status. Raises `UnknownReservation` for another holder's."""
    state.catalogue.layout(event_id)
    holder = await state.authenticator.holder_of(request, event_id)
    row = await state.holds.read(reservation_id, event_id=event_id)
    at_s = state.redis_stock.clocks.slowest_ms() / 1000
    require_owner(holder, row.holder, until_ms=row.release_at_ms if row.is_live else 0, now_s=at_s)
    return row


Own = Annotated[ReservationRow, Depends(own_reservation)]


@router.get("/events/{event_id}/reservations/{reservation_id}", summary="Get a reservation")
async def get_reservation(row: Own, response: Response) -> ReservationView:
    response.headers["cache-control"] = "no-store"
    return reservation_view(row)


@router.delete("/events/{event_id}/reservations/{reservation_id}", status_code=204, summary="Release a reservation")
async def release_reservation(row: Own, state: StateDep) -> None:
    if await state.holds.release(row):
        state.address_holds.discard(row.reservation_id)


@router.post("/events/{event_id}/reservations/{reservation_id}/extend", summary="Extend a reservation once")
async def extend(row: Own, state: StateDep) -> ReservationView:
    extended = await state.holds.extend(row)
    state.address_holds.prolong(row.reservation_id, until_ms=extended.reserved_until_ms)
    return reservation_view(extended)


@router.post("/events/{event_id}/reservations/{reservation_id}/keep", summary="Release a part of a reservation")
async def keep_places(row: Own, state: StateDep, kept: KeepBody) -> ReservationView:
    """Keeps the named places and releases all others. Repeating it changes nothing."""
    ga = {part.section_id: part.quantity for part in kept.ga}
    return reservation_view(await state.holds.keep_only(row, kept.seats, ga=ga))


HELD = (
    "Held until `reserved_until`. For a request with a queue token or user JWT, `Onsale-Pass` has the pass and"
    " `Onsale-Checkout-Key` its checkout key"
)
RESERVE = FastRoute(
    "POST", "/events/{event_id}/reservations", Reserve(), tag="reservations",
    summary="Reserve seats and GA tickets, all or none", body=ReserveBody, answers={201: (HELD, ReservationView)},
    parameters=[
        {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string", "maxLength": 200}},
    ],
    refusals={
        401: "The credential is missing or invalid",
        403: "Not admitted yet (see Retry-After), or the credential is for another event",
        404: "Unknown event or section, or a signed-in fan who is not in the line",
        409: "seats-taken, no-adjacent-seats, sold-out or limit-exceeded: nothing was reserved",
        410: "The place in the line has ended, or the waiting room was reset",
        422: "A value is invalid, or the Idempotency-Key was used with another body",
        503: "The stock is being rebuilt, or too many requests wait; see Retry-After",
    },
)  # fmt: skip
