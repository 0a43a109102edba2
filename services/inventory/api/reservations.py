"""Reservations over HTTP: taking (the hot path), seeing, extending, giving back."""

import hashlib
import math
import os
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request, Response
from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from services.inventory.api.auth import require_current_epoch, require_owner
from services.inventory.api.schemas import (
    RESERVATION_ASK,
    BestAvailable,
    KeepAsk,
    ReservationAsk,
    record_body,
    reservation_body,
)
from services.inventory.catalogue.layout import Layout
from services.inventory.problems import AlreadyBought, AlreadyExtended
from services.inventory.reservations.expiry import cancel
from services.inventory.reservations.keep import keep
from services.inventory.reservations.repository import ReservationRow, read
from services.inventory.reservations.reserve import Answer, ReservationRequest, Reserved
from services.inventory.reservations.selection import Selection, content_hash
from services.inventory.state import InRoom, State
from shared.postgres.engine import statement
from shared.runtime.clock import now_ms
from shared.runtime.clock_offsets import LEDGER_NOW
from shared.security.tokens import Pass
from shared.web.client_address import client_address
from shared.web.fast_routes import JSON, NO_STORE, QUIET_KEY, answer, whole_body
from shared.web.fields import EventIdPath
from shared.web.problems import (
    HoldExpired,
    IdempotencyKeyMalformed,
    InvalidRequest,
    LimitExceeded,
    MalformedRequest,
    PaymentInProgress,
    SoldOut,
    TooManyRequests,
    UnknownReservation,
)

router = APIRouter(tags=["reservations"])
ReservationIdPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
KEY = re.compile(r"[A-Za-z0-9._:-]{1,200}")
EXTEND = statement(__package__, "extend")


class Reserve:
    """`POST /events/{event_id}/reservations`, spoken in plain ASGI: twice as fast as a function endpoint."""

    path = "/events/{event_id}/reservations"

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> None:
        scope = self._scope
        scope["route"], scope[QUIET_KEY] = Reserve, True
        connection = HTTPConnection(scope)
        inventory: State = scope["app"].state.deps
        layout = inventory.catalogue.layout(scope["path_params"]["event_id"])
        admission = require_current_epoch(await inventory.admissions.admitted(connection, layout.event_id), layout)
        body = _read_body(await whole_body(self._receive))
        ask = make_ask(layout, admission, body, connection.headers.get("idempotency-key"))
        told = orjson.dumps(answer_body(await _reserve(inventory, ask, scope)))
        await answer(self._send, 201, told, JSON, NO_STORE)


async def _reserve(inventory: State, ask: ReservationRequest, scope: Scope) -> Answer:
    """Within what one fan and one address may hold and give back. Raises `TooManyRequests`."""
    wait_s = inventory.given_back.wait_s((ask.layout.event_id, ask.holder), now_s=time.monotonic())
    if wait_s > 0:
        raise TooManyRequests("You gave tickets back several times just now.", retry_after_s=math.ceil(wait_s))
    address = client_address(scope, inventory.settings.trusted_proxies)
    inventory.address_holds.begin(address, ask.reservation_id, lasts_s=ask.layout.hold_ttl_s)
    try:
        made = await inventory.reserver(ask.layout.event_id).reserve(ask)
    except BaseException:
        inventory.address_holds.end(address, ask.reservation_id)
        raise
    if made.reservation_id != ask.reservation_id:  # the hold that the fan has already
        inventory.address_holds.end(address, ask.reservation_id)
    return made


def _read_body(raw: bytes) -> ReservationAsk:
    try:
        return RESERVATION_ASK.validate_json(raw)
    except ValidationError as refused:
        errors = refused.errors(include_url=False, include_input=False, include_context=False)
        if errors[0]["type"] == "json_invalid":
            raise MalformedRequest("The body is not JSON.") from None
        fields = [{"field": ".".join(map(str, e["loc"])) or "body", "message": e["msg"]} for e in errors[:20]]
        detail = "; ".join(f"{f['field']}: {f['message']}" for f in fields[:3])
        raise InvalidRequest(detail, errors=fields) from None


def make_ask(layout: Layout, admission: Pass, body: ReservationAsk, key: str | None) -> ReservationRequest:
    """The request as the gate takes it. The id derives from holder and key, so a repeat finds its reservation."""
    if key is not None and not KEY.fullmatch(key):
        raise IdempotencyKeyMalformed("For a reservation: 1 to 200 characters of A-Z a-z 0-9 . _ - :.")
    basket = layout.basket(body.seats, body.tickets())
    wanted, stock_print = _wanted(layout, basket, body.best_available)
    quantity = body.best_available.quantity if body.best_available else basket.quantity
    allowed = min(layout.tickets_per_order, admission.qty_max or layout.tickets_per_order)
    if quantity > allowed:
        raise LimitExceeded(f"tickets_per_order is {allowed}.", limit="tickets_per_order", allowed=allowed)
    named = new_id() if key is None else digest_id(layout.event_id, admission.holder, key)
    return ReservationRequest(
        layout,
        named,
        admission.holder,
        admission.jti,
        basket,
        wanted,
        stock_print,
        content_hash(body.email or "", str(body.reminders)),
        key is not None,
        admission.lane,
        admission.join_seq,
        body.email,
        body.reminders,
        admission.epoch,
    )


def _wanted(layout: Layout, basket: Selection, best: BestAvailable | None) -> tuple[dict[str, Any], str]:
    """What the gate reads, and a print of it."""
    if best is None:
        listed = basket.text()
        return {"basket": listed}, content_hash(listed)
    zones = layout.best(section_id=best.section_id, max_price_minor=best.max_price_minor)
    if not zones:
        raise SoldOut("Nothing is sold at this price.")
    places = [zone[:1] if not zone.width else (zone.section_id, zone.first, zone.last, zone.width) for zone in zones]
    tidy = layout.avoid_single_seats
    look = {"quantity": best.quantity, "zones": places, "split": best.split, "tidy": tidy}
    return {"best": look}, content_hash("best", best.model_dump_json())


def new_id() -> str:
    """Nobody's guess, and rising with time: the ledger's index then grows at its end."""
    return f"{now_ms():012x}{next(_tails)}"


def _random_tails() -> Iterator[str]:
    """Ten random bytes each, fetched for many at once: asking the kernel costs more than the rest."""
    while True:
        pool = os.urandom(10 * 256).hex()
        for start in range(0, len(pool), 20):
            yield pool[start : start + 20]


_tails = _random_tails()


def digest_id(event_id: str, holder: str, key: str) -> str:
    return hashlib.blake2b("\0".join((event_id, holder, key)).encode(), digest_size=16).hexdigest()


def answer_body(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Reserved):
        ask = answer.ask
        return reservation_body(
            answer.reservation_id, "pending_payment", answer.until_ms, ask.layout.currency, ask.basket
        )
    return record_body(answer)


async def _mine(request: Request, inventory: State, event_id: str, reservation_id: str) -> ReservationRow:
    """The caller's own reservation of this event."""
    inventory.catalogue.layout(event_id)
    caller = await inventory.admissions.caller(request, event_id)
    async with inventory.reading.connect() as connection:
        record = (await read(connection, [reservation_id])).get(reservation_id)
    if record is None or record.event_id != event_id:
        raise UnknownReservation
    at_s = inventory.redis_stock.clocks.slowest_ms() / 1000
    require_owner(caller, record.holder, until_ms=record.release_at_ms if record.is_live else 0, now_s=at_s)
    return record


@router.get("/events/{event_id}/reservations/{reservation_id}", summary="Get a reservation")
async def see(
    request: Request, response: Response, inventory: InRoom, event_id: EventIdPath, reservation_id: ReservationIdPath
) -> dict[str, Any]:
    response.headers["cache-control"] = "no-store"
    return record_body(await _mine(request, inventory, event_id, reservation_id))


@router.delete("/events/{event_id}/reservations/{reservation_id}", status_code=204, summary="Release a reservation")
async def give_back(
    request: Request, inventory: InRoom, event_id: EventIdPath, reservation_id: ReservationIdPath
) -> None:
    record = await _mine(request, inventory, event_id, reservation_id)
    if record.status == "pending_payment":
        ended = await cancel(
            inventory.db, inventory.redis_stock, event_id, [reservation_id], how="cancelled",
            now_ms=await _now_ms(inventory), actor=record.holder,
        )  # fmt: skip
        if ended:
            inventory.given_back.take((event_id, record.holder), now_s=time.monotonic())
            address = client_address(request.scope, inventory.settings.trusted_proxies)
            inventory.address_holds.end(address, reservation_id)
            return
        record = await _mine(request, inventory, event_id, reservation_id)
    _require_ended(record)


def _require_ended(record: ReservationRow) -> None:
    if record.status == "paying":
        raise PaymentInProgress("The reservation is being paid; cancel the order instead.")
    if record.status == "confirmed":
        raise AlreadyBought
    if record.status == "expired":
        raise HoldExpired


@router.post("/events/{event_id}/reservations/{reservation_id}/extend", summary="Extend a reservation once")
async def extend(
    request: Request, inventory: InRoom, event_id: EventIdPath, reservation_id: ReservationIdPath
) -> dict[str, Any]:
    record = await _mine(request, inventory, event_id, reservation_id)
    values = {"event_id": event_id, "reservation_id": reservation_id, "now_ms": await _now_ms(inventory)}
    async with inventory.db.begin() as connection:
        until_ms = (await connection.execute(EXTEND, values)).scalar()
    if until_ms is None:
        record = await _mine(request, inventory, event_id, reservation_id)
        if record.status == "pending_payment" and record.extended:
            raise AlreadyExtended
        _require_ended(record)
        raise HoldExpired
    await inventory.redis_stock.extend(event_id, [(reservation_id, until_ms)], grace_ms=record.grace_s * 1000)
    record.reserved_until_ms = until_ms
    return record_body(record)


@router.post("/events/{event_id}/reservations/{reservation_id}/keep", summary="Release a part of a reservation")
async def keep_some(
    request: Request, inventory: InRoom, event_id: EventIdPath, reservation_id: ReservationIdPath, kept: KeepAsk
) -> dict[str, Any]:
    """What is not named is free again. Asking again changes nothing."""
    await _mine(request, inventory, event_id, reservation_id)
    tickets = {part.section_id: part.quantity for part in kept.ga}
    return record_body(await keep(inventory.db, inventory.redis_stock, reservation_id, kept.seats, tickets))


async def _now_ms(inventory: State) -> int:
    """The time by the slowest clock, the ledger's read anew."""
    async with inventory.reading.connect() as connection:
        now_ms: int = (await connection.execute(LEDGER_NOW)).scalar_one()
    return min(now_ms + inventory.redis_stock.clock_offset_ms, inventory.redis_stock.slowest_ms())
