"""Inventory's part: what the pages ask it, and the forms of reservations for pages without scripts: hold tickets,
release all or a part, change their price types, and ask for more time.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import URL

from features.pages.contracts import (
    EventPageFacts,
    FindReservation,
    FoundReservation,
    ListedEvents,
    ListEvents,
    ReadEventPage,
    ReadSeats,
)
from features.pages.forms import Form, FormFields, Forms, SentForm
from services.inventory.api.catalogue import event_details, event_page, seat_page, section_list, shown_to
from services.inventory.layout.price_types import Fan
from services.inventory.layout.selection import GaLine, SeatLine
from services.inventory.redis_stock.seat_map import seat_statuses
from services.inventory.state import State
from shared.contracts.catalogue import SeatPage, SectionList
from shared.contracts.event_parts.price_types import QUOTA
from shared.postgres.pages import PageRequest
from shared.routes import EVENT_ID, SECTION_ID
from shared.web.internal_api import InternalApi
from shared.web.parts import Part

LISTED_MAX, SEATS_JOINED = 50, "."
API = InternalApi()


@API.operation("/events/page", ReadEventPage)
async def read_event_page(state: State, question: ReadEventPage) -> EventPageFacts:
    layout = state.catalogue.layout(question.event_id)
    availability = SectionList.model_validate(section_list(layout, await state.availability.frame(layout)))
    return EventPageFacts(event=event_details(layout), availability=availability)


@API.operation("/events/list", ListEvents)
async def list_events(state: State, question: ListEvents) -> ListedEvents:
    await state.catalogue.check()
    page = PageRequest(URL(), question.after, LISTED_MAX, newest_first=False)
    found = event_page(state.catalogue.layouts(), page)
    return ListedEvents(events=found.events, more=found.next is not None)


@API.operation("/reservations/of-holder", FindReservation)
async def find_reservation(state: State, question: FindReservation) -> FoundReservation:
    row = await state.holds.live_of(question.event_id, question.holder)
    if row is None:
        return FoundReservation()
    layout = state.catalogue.layout(row.event_id)
    lines: list[SeatLine | GaLine] = [*row.selection.seats, *row.selection.ga]
    prices = [layout.prices_at(line) for line in lines] if layout.types.types else []
    return FoundReservation(reservation=row.to_contract(), extended=row.extended, prices=prices)


@API.operation("/sections/seats", ReadSeats)
async def read_section_seats(state: State, question: ReadSeats) -> SeatPage:
    """The caller has checked that its fan is admitted."""
    layout = state.catalogue.layout(question.event_id)
    section = layout.section(question.section_id, "seated")
    positions = section.positions(page=question.page, page_size=question.page_size)
    statuses = {} if not positions else await seat_statuses(
        state.autocommit_db, state.redis_stock, question.event_id, section.section_id, first=positions[0],
        last=positions[-1], jti="",
    )  # fmt: skip
    visible = shown_to(layout, section, statuses, Fan())
    shown = seat_page(layout, section, positions, visible, page=question.page, page_size=question.page_size)
    return SeatPage.model_validate(shown)


# -- forms -------------------------------------------------------------------------------------------------------------

EVENT = rf"/events/(?P<event_id>{EVENT_ID})"
RESERVATION = rf"{EVENT}/reservations/(?P<reservation_id>[0-9a-f]{{32}})"
_section_id = re.compile(SECTION_ID)
TYPED = ("type.", "ga.", "seat", "where", "split", "code", "wheelchair", "companions")


def reserve_body(fields: FormFields) -> dict[str, Any]:
    """The best available places (`quantity` or `type.<type>`, `where`, `split`), or the places that are named."""
    types = {type_id: n for type_id, n in fields.numbers_below("type").items() if n != 0}
    quantity = fields.number("quantity")
    if fields.one("best") is not None:
        quantity = sum(n for n in types.values() if isinstance(n, int))
    if quantity is None:
        return fields.given(**_named(fields), code=fields.one("code"))
    where, split = fields.one("where"), fields.one("split") is not None
    best = fields.given(quantity=quantity, section_id=where, split=split or None, types=types)
    return {"best_available": best | _accessible(fields, best)} | fields.given(code=fields.one("code"))


def _accessible(fields: FormFields, best: Mapping[str, Any]) -> dict[str, Any]:
    """What changes in `best` for `wheelchair` places and `companions`, which are counted besides the other tickets; at
    the price types of such places, which the form names if there are any.
    """
    wheelchair, companions = fields.number("wheelchair"), fields.number("companions") or 0
    if not (isinstance(wheelchair, int) and isinstance(companions, int) and isinstance(best["quantity"], int)):
        return fields.given(wheelchair=wheelchair)
    if wheelchair == 0 and companions == 0:
        return {}
    numbers = {"wheelchair_type": wheelchair, "companion_type": min(wheelchair, companions)}
    types = Counter[str](best.get("types", {}))
    for name, n in numbers.items():
        if n and (type_id := fields.one(name)):
            types[type_id] += n
    return fields.given(types=dict(types)) | {
        "quantity": best["quantity"] + wheelchair + companions, "wheelchair": wheelchair, "companions": companions,
    }  # fmt: skip


def _named(fields: FormFields) -> dict[str, Any]:
    """Seats by `seat`, and general admission by `ga.<section>` or `ga.<section>~<type>`; none of it is not named."""
    ga = []
    for name, quantity in fields.numbers_below("ga").items():
        section, _, type_id = name.partition("~")
        if quantity != 0:
            ga.append(fields.given(section_id=section, type_id=type_id or None) | {"quantity": quantity})
    return fields.given(seats=fields.all("seat"), ga=ga)


def types_body(fields: FormFields) -> dict[str, Any]:
    """The price type of each ticket: `type.<seat>`, and `type.<section>` once for each ticket without a seat."""
    chosen = list(fields.below("type"))
    types = {place: type_id for place, type_id in chosen if "-" in place}
    counts = Counter((place, type_id) for place, type_id in chosen if "-" not in place)
    ga = [{"section_id": place, "type_id": type_id, "quantity": n} for (place, type_id), n in counts.items()]
    return fields.given(types=types, ga=ga, code=fields.one("code"))


def next_page(sent: SentForm) -> str:
    """The event's page; after a refusal the section whose seats were shown, and the price type that was refused. It is
    given the seats that were left alone, and better ones.
    """
    section, shown = sent.fields.one("section") or "", dict[str, str]()
    if sent.slug and _section_id.fullmatch(section):
        shown["section"] = section
    if promo := sent.fields.one("promo_code"):
        shown["promo"] = promo
    single = sent.answer.get("single_seats") or {}
    if sent.slug == "single-seat":
        single = {"left_alone": sent.answer["seats"], "better": sent.answer["better"]}
        shown["better"] = SEATS_JOINED.join(single["better"])
    if single:
        shown["alone"] = SEATS_JOINED.join(single["left_alone"])
    address = urlencode(shown | _refused_type(sent))
    return f"/e/{sent.path['event_id']}" + (f"?{address}" if address else "")


def _refused_type(sent: SentForm) -> dict[str, str]:
    """Which price type was refused and why; the page has the words."""
    answer = sent.answer
    if sent.slug == "price-type-refused":
        address = {"type": answer.get("type_id"), "reason": answer.get("reason"), "n": answer.get("allowed")}
    elif sent.slug == "sold-out":
        used_up = [(name, n) for name, n in answer.get("available", {}).items() if name.startswith(QUOTA)]
        address = {"type": used_up[0][0].removeprefix(QUOTA), "n": used_up[0][1]} if used_up else {}
    else:
        address = {name: answer[name] for name in ("wheelchair", "companions") if sent.slug == "no-accessible-places"}
    return {name: str(value) for name, value in address.items() if value is not None}


def kept_reservation(sent: SentForm) -> Mapping[str, str]:
    """A hold's id, by which the page's script finds the hold if scripts are switched on meanwhile."""
    held = sent.answer.get("reservation_id")
    return {f"onsale_reservation_{sent.path['event_id']}": str(held)} if held and not sent.slug else {}


PART = Part(internal_api=API, forms=Forms(
    Form(f"{EVENT}/reservations", reserve_body, next_page, cookies=kept_reservation, typed=TYPED),
    Form(RESERVATION, lambda fields: {}, next_page, method="DELETE"),
    Form(f"{RESERVATION}/extend", lambda fields: {}, next_page),
    Form(f"{RESERVATION}/keep", _named, next_page),
    Form(f"{RESERVATION}/types", types_body, next_page, typed=TYPED),
))  # fmt: skip
