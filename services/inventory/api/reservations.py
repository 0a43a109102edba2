"""Fans' API for reservations: reserve, get, extend, release all or a part."""

import hashlib
import math
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from inspect import getdoc
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.types import Scope

from services.inventory.auth import require_current_epoch, require_owner
from services.inventory.layout.best_places import BestPlaces, criteria
from services.inventory.layout.layout import Layout
from services.inventory.layout.price_types import Fan
from services.inventory.layout.selection import GaKey, Selection, content_hash
from services.inventory.reservations import single_seats
from services.inventory.reservations.reserve import ReservationRequest, Reserved, ReserveResult
from services.inventory.reservations.single_seats import SingleSeats
from services.inventory.state import State
from services.inventory.store.reservations import ReservationRow
from shared.contracts.event_parts.price_types import PRICE_MINOR_MAX, TYPES_MAX, USUAL, TypeId
from shared.contracts.fields import EVENT_ID_PATTERN, Body, Email, SeatId, SectionId, TypedCode, code_key
from shared.contracts.frames import ReservationState
from shared.errors.problems import (
    IdempotencyKeyMalformed,
    LimitExceeded,
    TooManyRequests,
)
from shared.runtime.clock import now_ms, rfc3339
from shared.security.limits import client_address
from shared.security.tokens import Pass
from shared.web.answers import NO_STORE, Answer, json_answer
from shared.web.fast_routes import FastRoute
from shared.web.request import Request

IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9._:-]{1,200}")
TICKETS_MAX, GA_MAX = 100, 60
SeatTypes = dict[SeatId, TypeId]
SEAT_TYPES = "The price type of seats; the others are of the usual one."
CODE = "Opens price types and places that need a code."


def require_types_of_seats(types: Iterable[str], seats: Collection[str]) -> None:
    """Raises `ValueError` for a price type of a seat that is not named."""
    if others := sorted(set(types) - set(seats)):
        raise ValueError(f"types: {others[0]} is none of the seats")


class GaTickets(Body):
    """Tickets of one GA section and price type."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)
    type_id: TypeId | None = Field(None, description="Default: the usual price type.")


class BestAvailable(Body):
    """The best places next to each other, in one section or anywhere, at most at this price each."""

    quantity: int = Field(ge=1, le=TICKETS_MAX)
    section_id: SectionId | None = None
    max_price_minor: int | None = Field(None, ge=0, le=PRICE_MINOR_MAX)
    types: dict[TypeId, Annotated[int, Field(ge=1, le=TICKETS_MAX)]] = Field(
        default_factory=dict,
        max_length=TYPES_MAX,
        description="How many of them of which price type; the others are usual.",
    )
    split: bool = Field(False, description="Split into groups if there are not enough adjacent seats.")
    wheelchair: int = Field(0, ge=0, le=TICKETS_MAX, description="How many of them are wheelchair places.")
    companions: int = Field(
        0,
        ge=0,
        le=TICKETS_MAX,
        description="How many of them are for who comes along: one next to each wheelchair place, the others near.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sum(self.types.values()) > self.quantity:
            raise ValueError("types has more tickets than quantity")
        if self.wheelchair + self.companions > self.quantity:
            raise ValueError("wheelchair and companions are more tickets than quantity")
        if self.companions and not self.wheelchair:
            raise ValueError("companions come along with wheelchair places")
        return self


class ReserveBody(Body):
    """Seats, GA tickets or both, or else the best available places. `ga_section` and `ga_quantity` are short for one
    entry of `ga`.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 2}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaTickets] = Field(default_factory=list, max_length=GA_MAX)
    types: SeatTypes = Field(default_factory=dict, max_length=TICKETS_MAX, description=SEAT_TYPES)
    code: TypedCode = Field(None, description=CODE)
    ga_section: SectionId | None = None
    ga_quantity: int | None = Field(None, ge=0, le=TICKETS_MAX)
    best_available: BestAvailable | None = None
    email: Email | None = None
    reminders: bool = Field(
        False, description="Consent to reminder mail before the hold ends and after it has expired."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.ga_section is None) != (not self.ga_quantity):
            raise ValueError("ga_section and ga_quantity go together")
        named = self.seats or self.ga or self.ga_section
        if not named and self.best_available is None:
            raise ValueError("name seats, GA tickets, or best_available")
        if named and self.best_available is not None:
            raise ValueError("best_available cannot be combined with seats or ga")
        if self.reminders and self.email is None:
            raise ValueError("reminders need an email")
        if len(set(self.seats)) != len(self.seats):
            raise ValueError("each seat may be named once")
        require_types_of_seats(self.types, self.seats)
        return self

    def tickets(self) -> list[GaTickets]:
        """GA tickets, from `ga` and from the short form."""
        short = [GaTickets(section_id=self.ga_section, quantity=self.ga_quantity or 1)] if self.ga_section else []
        return [*short, *self.ga]


class TypesBody(Body):
    """The price types of all tickets of a reservation: of seats that are not named the usual one; of general admission
    each section with all of its tickets.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"types": {"A-1-1": "child"}}]})

    types: SeatTypes = Field(default_factory=dict, max_length=TICKETS_MAX, description=SEAT_TYPES)
    ga: list[GaTickets] = Field(default_factory=list, max_length=GA_MAX)
    code: TypedCode = Field(None, description=CODE)


class KeepBody(Body):
    """The places of a reservation to keep; all others are released."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaTickets] = Field(default_factory=list, max_length=GA_MAX)

    @model_validator(mode="after")
    def _something_once(self) -> Self:
        if not self.seats and not self.ga:
            raise ValueError("name the places to keep; use DELETE to release all of them")
        named = {(part.section_id, part.type_id) for part in self.ga}
        if len(set(self.seats)) != len(self.seats) or len(named) != len(self.ga):
            raise ValueError("each seat, and each section and price type, may be named once")
        return self


class GaHeld(BaseModel):
    """Tickets of one GA section."""

    section_id: str
    quantity: int


class TicketView(BaseModel):
    """A seat, or tickets of one GA section and price type; `type_id` is null where the event has no price types.
    `prices` are those of all price types that are sold at the place, empty where the event has none.
    """

    section_id: str
    seat_id: str | None
    quantity: int
    type_id: str | None
    unit_price_minor: int
    prices: dict[str, int] = {}


class SingleSeatsView(BaseModel):
    """Seats that this choice left without an available neighbour in their row, and as many seats that would have left
    none: all of the choice, null if there is no such choice.
    """

    left_alone: list[str]
    better: list[str] | None


class ReservationView(BaseModel):
    """A reservation. `ga_section` and `ga_quantity` repeat the first entry of `ga`; `tickets` has all of it at its
    prices. `single_seats` is only in the answer to the request that left seats alone, else null.
    """

    reservation_id: str
    reserved_until: str
    seats: list[str]
    ga_section: str | None
    ga_quantity: int
    ga: list[GaHeld]
    tickets: list[TicketView]
    total_amount_minor_units: int
    currency: str
    status: ReservationState
    single_seats: SingleSeatsView | None


def reservation_body(
    reservation_id: str,
    *,
    status: ReservationState,
    reserved_until_ms: int,
    layout: Layout,
    selection: Selection,
    total_minor: int,
    single: SingleSeats | None = None,
) -> dict[str, Any]:
    """A `ReservationView` as a dict: the fast route writes it without a model."""
    shown = selection.shown()
    ga = shown["ga"]
    return {
        "reservation_id": reservation_id,
        "reserved_until": rfc3339(reserved_until_ms),
        "seats": shown["seats"],
        "ga_section": ga[0]["section_id"] if ga else None,
        "ga_quantity": ga[0]["quantity"] if ga else 0,
        "ga": ga,
        "tickets": _tickets(layout, selection),
        "total_amount_minor_units": total_minor,
        "currency": layout.currency,
        "status": status,
        "single_seats": single and single._asdict(),
    }


def _tickets(layout: Layout, selection: Selection) -> list[dict[str, Any]]:
    usual = layout.usual_type_id
    seats: list[dict[str, Any]] = [
        {
            "section_id": line.section_id, "seat_id": line.seat_id, "quantity": 1, "type_id": line.type_id or usual,
            "unit_price_minor": line.unit_price_minor, "prices": layout.prices_at(line) if usual else {},
        }
        for line in selection.seats
    ]  # fmt: skip
    ga: list[dict[str, Any]] = [
        {
            "section_id": line.named[0], "seat_id": None, "quantity": line.quantity, "type_id": line.type_id or usual,
            "unit_price_minor": line.unit_price_minor, "prices": layout.prices_at(line) if usual else {},
        }
        for line in selection.ga
    ]  # fmt: skip
    return seats + ga


def row_body(row: ReservationRow, layout: Layout, single: SingleSeats | None = None) -> dict[str, Any]:
    return reservation_body(
        row.reservation_id, status=row.status, reserved_until_ms=row.reserved_until_ms, layout=layout,
        selection=row.selection, total_minor=row.total_minor, single=single,
    )  # fmt: skip


async def reserve(request: Request) -> Answer:
    """Holds tickets for the holder of a pass, all or none."""
    state: State = request.state
    layout = state.catalogue.layout(request.path["event_id"])
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    body, key = await request.json(ReserveBody), request.fields.get(b"idempotency-key")
    if body.code is not None:
        state.code_tries.require(layout, admission.holder, body.code)
    wanted = build_request(layout, admission, body, key.decode("latin-1") if key is not None else None)
    return json_answer(result_body(await _reserve(state, wanted, request.scope), layout), status=201)


async def _reserve(state: State, request: ReservationRequest, scope: Scope) -> ReserveResult:
    """Reserves within the limits per fan and per client address. Raises `TooManyRequests`."""
    wait_s = state.given_back.wait_s((request.layout.event_id, request.holder), now_s=time.monotonic())
    if wait_s > 0:
        detail = "You gave tickets back several times just now. Wait before you reserve again."
        raise TooManyRequests(detail, retry_after_s=math.ceil(wait_s))
    address = client_address(scope, state.settings.trusted_proxies)
    with state.address_holds.counted(address, request.reservation_id, lasts_s=request.layout.hold_ttl_s) as counted:
        made = await state.batchers[request.layout.event_id].reserve(request)
        is_live = made.is_live if isinstance(made, ReservationRow) else True
        if is_live and made.reservation_id == request.reservation_id:  # else an earlier hold of this fan
            counted.is_held = True
    return made


def build_request(
    layout: Layout, admission: Pass, body: ReserveBody, key: str | None
) -> ReservationRequest:  # fmt: skip
    """The request for the batcher. The id is derived from holder and Idempotency-Key, so a repeat finds its
    reservation.
    """
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise IdempotencyKeyMalformed("Send 1 to 200 characters of A-Z a-z 0-9 . _ - : as the Idempotency-Key.")
    selection = selected(layout, body.seats, body.tickets(), body.types)
    fan = Fan(admission.lane, body.code)
    layout.require(selection, fan)
    redis_request, stock_hash = _redis_request(layout, selection, body.best_available, fan)
    if body.code and not selection.seats:  # with another code the same words ask for other places
        stock_hash = content_hash(stock_hash, code_key(body.code))
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


def selected(
    layout: Layout, seats: Collection[str], tickets: Iterable[GaTickets], types: Mapping[str, str]
) -> Selection:
    """The places that a request names, with their price types. Raises `UnknownSeat`, `UnknownSection` or
    `UnknownPriceType`.
    """
    ga: dict[GaKey, int] = {}
    for part in tickets:
        key = part.section_id, layout.types.stored_id(part.type_id) if part.type_id else USUAL
        ga[key] = ga.get(key, 0) + part.quantity
    if not types:
        return layout.select(seats, ga)
    return layout.select(seats, ga, {seat_id: layout.types.stored_id(each) for seat_id, each in types.items()})


def _redis_request(
    layout: Layout, selection: Selection, best: BestAvailable | None, fan: Fan
) -> tuple[dict[str, Any], str]:
    """What the hold script reads, and its hash."""
    pools = layout.exclusive.pools(fan) if layout.offers.exclusive else {}
    if best is None:
        listed = selection.text()
        wanted = {"selection": listed, **layout.single_seats_criteria(selection, fan)}
        if pools := {line.section_id: pools[line.section_id] for line in selection.ga if line.section_id in pools}:
            wanted["pools"] = pools
        if not selection.types:
            return wanted, content_hash(listed)
        chosen = [f"{line.seat_id}={line.type_id}" for line in selection.seats if line.type_id]
        chosen += [f"{line.section_id}*{line.quantity}={line.type_id}" for line in selection.ga if line.type_id]
        return wanted, content_hash(listed, *chosen)
    places = BestPlaces(**best.model_dump())
    return {"best": criteria(layout, places, fan, pools)}, content_hash("best", best.model_dump_json())


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


def result_body(result: ReserveResult, layout: Layout) -> dict[str, Any]:
    if not isinstance(result, Reserved):
        return row_body(result, layout)
    request = result.request
    return reservation_body(
        result.reservation_id, status="pending_payment", reserved_until_ms=result.until_ms,
        layout=layout, selection=request.selection, total_minor=request.selection.total_minor,
        single=result.single_seats,
    )  # fmt: skip


async def own_reservation(request: Request) -> ReservationRow:
    """The holder's own reservation of this event, in any status. Raises `UnknownReservation` for another holder's."""
    state: State = request.state
    event_id = state.catalogue.layout(request.path["event_id"]).event_id
    holder = await state.authenticator.holder_of(request, event_id)
    row = await state.holds.read(request.path["reservation_id"], event_id=event_id)
    at_s = state.redis_stock.clocks.slowest_ms() / 1000
    require_owner(holder, row.holder, until_ms=row.release_at_ms if row.is_live else 0, now_s=at_s)
    return row


def _answer(request: Request, row: ReservationRow) -> Answer:
    state: State = request.state
    return json_answer(row_body(row, state.catalogue.layout(row.event_id)))


async def get_reservation(request: Request) -> Answer:
    return _answer(request, await own_reservation(request))


async def release_reservation(request: Request) -> Answer:
    state, row = request.state, await own_reservation(request)
    if await state.holds.release(row):
        state.address_holds.discard(row.reservation_id)
    return Answer(204, b"", (NO_STORE,))


async def extend(request: Request) -> Answer:
    state, row = request.state, await own_reservation(request)
    extended = await state.holds.extend(row)
    state.address_holds.prolong(row.reservation_id, until_ms=extended.reserved_until_ms)
    return _answer(request, extended)


async def keep_places(request: Request) -> Answer:
    """Keeps the named places and releases all others. Repeating it changes nothing."""
    state: State = request.state
    row, kept = await own_reservation(request), await request.json(KeepBody)
    layout = state.catalogue.layout(row.event_id)
    ga = {(part.section_id, layout.types.stored_id(part.type_id)): part.quantity for part in kept.ga}
    left = await state.holds.keep_only(row, layout, kept.seats, ga=ga)
    single = await single_seats.left_by_release(state.redis_stock, layout, before=row.selection, after=left.selection)
    return json_answer(row_body(left, layout, single))


async def change_types(request: Request) -> Answer:
    """Changes the price types of tickets that are held, and with them what they cost. The places stay, and so does the
    time. Repeating it changes nothing.
    """
    state: State = request.state
    row, wanted = await own_reservation(request), await request.json(TypesBody)
    layout = state.catalogue.layout(row.event_id)
    selection = selected(layout, [line.seat_id for line in row.selection.seats], wanted.ga, wanted.types)
    if wanted.code is not None:
        state.code_tries.require(layout, row.holder, wanted.code)
    layout.require_types(selection, Fan(row.lane, wanted.code))
    counted = selection.counted_as(row.selection.stock)
    return _answer(request, await state.type_changes.change(row, layout, counted))


HELD = (
    "Held until `reserved_until`. For a request with a queue token or user JWT, `Onsale-Pass` has the pass and"
    " `Onsale-Checkout-Key` its checkout key"
)
RESERVATIONS = "/events/{event_id}/reservations"
RESERVATION = f"{RESERVATIONS}/{{reservation_id}}"
_route = partial(
    FastRoute, tag="reservations", patterns={"event_id": EVENT_ID_PATTERN, "reservation_id": "^[0-9a-f]{32}$"}
)
FAST_ROUTES = [
    FastRoute(
        "POST", RESERVATIONS, reserve, tag="reservations",
        summary="Reserve seats and GA tickets, all or none", body=ReserveBody, answers={201: (HELD, ReservationView)},
        parameters=[{
            "name": "Idempotency-Key", "in": "header", "required": False,
            "schema": {"type": "string", "maxLength": 200},
        }],
        refusals={
            401: "The credential is missing or invalid",
            403: "Not admitted yet (see Retry-After), or the credential is for another event",
            404: "Unknown event, section or price type, or a signed-in fan who is not in the line",
            409: "Nothing was reserved: seats-taken, single-seat, no-adjacent-seats, no-accessible-places, sold-out, "
            "limit-exceeded price-type-refused or reserved-seats",
            410: "The place in the line has ended, or the waiting room was reset",
            422: "A value is invalid, or the Idempotency-Key was used with another body",
            503: "The stock is being rebuilt, or too many requests wait; see Retry-After",
        },
    ),
    _route(
        "GET", RESERVATION, get_reservation, summary="Get a reservation",
        answers={200: ("The reservation", ReservationView)},
    ),
    _route(
        "DELETE", RESERVATION, release_reservation, summary="Release a reservation", answers={204: ("Released", None)},
    ),
    _route(
        "POST", f"{RESERVATION}/extend", extend, summary="Extend a reservation once",
        answers={200: ("The reservation with its new end", ReservationView)},
    ),
    _route(
        "POST", f"{RESERVATION}/keep", keep_places, summary="Release a part of a reservation", body=KeepBody,
        description=getdoc(keep_places),
        answers={200: ("The reservation with the places that were kept", ReservationView)},
    ),
    _route(
        "POST", f"{RESERVATION}/types", change_types, summary="Change the price types of a reservation", body=TypesBody,
        description=getdoc(change_types), answers={200: ("The reservation at its new prices", ReservationView)},
    ),
]  # fmt: skip
