"""Inventory's part: what the pages ask it, and the forms of reservations for pages without scripts: hold tickets,
release all or a part, and ask for more time.
"""

import re
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
from services.inventory.api.catalogue import event_details, event_page, seat_page, section_list
from services.inventory.redis_stock.seat_map import seat_statuses
from services.inventory.state import State
from shared.contracts.catalogue import SeatPage, SectionList
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
    return FoundReservation(reservation=row.to_contract(), extended=row.extended) if row else FoundReservation()


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
    shown = seat_page(layout, section, positions, statuses, page=question.page, page_size=question.page_size)
    return SeatPage.model_validate(shown)


# -- forms -------------------------------------------------------------------------------------------------------------

EVENT = rf"/events/(?P<event_id>{EVENT_ID})"
RESERVATION = rf"{EVENT}/reservations/(?P<reservation_id>[0-9a-f]{{32}})"
_section_id = re.compile(SECTION_ID)


def reserve_body(fields: FormFields) -> dict[str, Any]:
    """The best available places (`quantity`, `where`, `split`), or the places that are named."""
    quantity = fields.number("quantity")
    if quantity is None:
        return _named(fields)
    where, split = fields.one("where"), fields.one("split") is not None
    return {"best_available": fields.given(quantity=quantity, section_id=where, split=split or None)}


def _named(fields: FormFields) -> dict[str, Any]:
    """Seats by `seat`, and general admission by `ga.<section>`; none of a section is not named."""
    wanted = fields.numbers_below("ga")
    ga = [{"section_id": section, "quantity": quantity} for section, quantity in wanted.items() if quantity != 0]
    return fields.given(seats=fields.all("seat"), ga=ga)


def next_page(sent: SentForm) -> str:
    """The event's page; after a refusal the section whose seats were shown. It is given the seats that were left alone,
    and better ones.
    """
    section, shown = sent.fields.one("section") or "", dict[str, str]()
    if sent.slug and _section_id.fullmatch(section):
        shown["section"] = section
    single = sent.answer.get("single_seats") or {}
    if sent.slug == "single-seat":
        single = {"left_alone": sent.answer["seats"], "better": sent.answer["better"]}
        shown["better"] = SEATS_JOINED.join(single["better"])
    if single:
        shown["alone"] = SEATS_JOINED.join(single["left_alone"])
    return f"/e/{sent.path['event_id']}{'?' if shown else ''}{urlencode(shown)}"


def kept_reservation(sent: SentForm) -> Mapping[str, str]:
    """A hold's id, by which the page's script finds the hold if scripts are switched on meanwhile."""
    held = sent.answer.get("reservation_id")
    return {f"onsale_reservation_{sent.path['event_id']}": str(held)} if held and not sent.slug else {}


PART = Part(internal_api=API, forms=Forms(
    Form(f"{EVENT}/reservations", reserve_body, next_page, cookies=kept_reservation),
    Form(RESERVATION, lambda fields: {}, next_page, method="DELETE"),
    Form(f"{RESERVATION}/extend", lambda fields: {}, next_page),
    Form(f"{RESERVATION}/keep", _named, next_page),
))  # fmt: skip
