"""Fans' API for the catalogue: events, availability by section, and the seats of a section.

What is the same for everybody is encoded and compressed once, for as long as it is true.
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from inspect import getdoc
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field
from starlette.datastructures import URL

from services.inventory.auth import require_current_epoch
from services.inventory.layout.layout import Layout, Section
from services.inventory.layout.price_types import Fan
from services.inventory.redis_stock.seat_map import seat_statuses
from services.inventory.state import State
from shared.contracts.catalogue import (
    EventCard,
    EventDetails,
    EventLimits,
    EventPage,
    PriceTypeDetails,
    SeatPage,
    SectionList,
)
from shared.contracts.fields import EVENT_ID_PATTERN, SECTION_ID_PATTERN, EventId, TypedCode
from shared.contracts.frames import StockFrame
from shared.postgres.pages import PageRequest
from shared.web.answers import JSON, Answer, Document, Documents, compressed, json_answer
from shared.web.fast_routes import FastRoute
from shared.web.request import Request

JSON_TYPE, REVALIDATED = "application/json", "public, no-cache"
NOSNIFF = {"x-content-type-options": "nosniff"}
PAGE_SIZE = Annotated[int, Field(ge=1, le=500)]


class SeatsQuery(BaseModel):
    """Which seats of a section."""

    page: int = Field(1, ge=1, le=10_000)
    page_size: PAGE_SIZE = 50
    code: TypedCode = Field(None, description="Shows the places that need it as available.")


class EventsQuery(BaseModel):
    """Which events: those that follow on this one."""

    after: EventId | None = None
    page_size: PAGE_SIZE = 50


# -- the answers -------------------------------------------------------------------------------------------------------


def _listed(layouts: Iterable[Layout], after: str | None) -> list[Layout]:
    """Events by their start, without rehearsals, after this one."""
    on_sale = (layout for layout in layouts if not layout.rehearsal)
    ordered = sorted(on_sale, key=lambda layout: (layout.starts_at, layout.event_id))
    if after is None:
        return ordered
    ids = [layout.event_id for layout in ordered]
    return ordered[ids.index(after) + 1 :] if after in ids else []


def event_page(layouts: Iterable[Layout], page: PageRequest[str]) -> EventPage:
    """Rehearsals are not listed."""
    ordered = _listed(layouts, page.cursor)
    shown, following = page.cut(ordered, lambda layout: layout.event_id)
    return EventPage(events=[EventCard.model_validate(_card(layout)) for layout in shown], next=following)


def _card(layout: Layout) -> dict[str, Any]:
    return {
        "event_id": layout.event_id,
        "name": layout.name,
        "venue": layout.venue,
        "starts_at": layout.starts_at,
        "ends_at": layout.ends_at,
        "timezone": layout.timezone,
        "currency": layout.currency,
        "price_from_minor": min(section.price_from_minor for section in layout.sections.values()),
        **{name: value for part in layout.shown for name, value in part.card(layout).items()},
    }


def event_details(layout: Layout) -> EventDetails:
    limits = {name: getattr(layout, name) for name in EventLimits.model_fields}
    sections = [_section(section, layout) for section in layout.sections.values()]
    shown = {name: value for part in layout.shown for name, value in part.details(layout).items()}
    names = {"names": layout.names, "names_until": layout.names_until or layout.starts_at}
    shown |= names if layout.names != "none" else {}
    return EventDetails.model_validate(
        {**_card(layout), "limits": limits, "price_types": _types(layout), "sections": sections, **shown}
    )


def _types(layout: Layout) -> list[dict[str, Any]]:
    """Without the codes."""
    shown = PriceTypeDetails.model_fields.keys() - {"code_required"}
    return [{**each.model_dump(include=set(shown)), "code_required": bool(each.codes)} for each in layout.types.types]


def _section(section: Section, layout: Layout) -> dict[str, Any]:
    is_seated, traits = section.kind == "seated", list(section.traits)
    return {
        "section_id": section.section_id, "name": section.name, "kind": section.kind, "type": section.type,
        "capacity": section.capacity, "price_minor": section.price_from_minor,
        "regular_price_minor": section.price_minor, "currency": layout.currency,
        "price_levels": [
            {
                "name": tier.name, "rows": [tier.first, tier.last], "price_minor": tier.price_minor,
                "prices": layout.type_prices(tier, section, traits),
            }
            for tier in section.price_tiers
        ],
        "prices": layout.type_prices(section, section, traits), "traits": traits,
        "rows": section.rows if is_seated else None, "seats_per_row": section.seats_per_row if is_seated else None,
    }  # fmt: skip


def section_list(layout: Layout, frame: StockFrame) -> dict[str, Any]:
    """A `SectionList`."""
    counts = {section.section_id: section for section in frame.sections}
    return {"sections": [
        {
            "section_id": s.section_id, "name": s.name, "kind": s.kind, "type": s.type, "total_seats": s.capacity,
            "available_seats": counts[s.section_id].available, "held_seats": counts[s.section_id].held,
            "reserved_seats": counts[s.section_id].reserved, "price_minor": s.price_from_minor,
            "currency": layout.currency,
        }
        for s in layout.sections.values() if s.section_id in counts
    ], "types": [
        {"type_id": each.type_id, "available": each.available}
        for each in frame.types
        if (kind := layout.types.by_id.get(each.type_id)) and kind.quota is not None
    ]}  # fmt: skip


def shown_to(layout: Layout, section: Section, statuses: Mapping[int, str], fan: Fan) -> Mapping[int, str]:
    """The statuses of seats as this fan sees them: what only others may buy is reserved."""
    if section.section_id not in layout.exclusive.seats:
        return statuses
    return {
        position: "reserved"
        if status == "available" and layout.exclusive.are_closed_to(fan, section.section_id, position)
        else status
        for position, status in statuses.items()
    }


def seat_page(
    layout: Layout,
    section: Section,
    positions: Sequence[int],
    statuses: Mapping[int, str],
    *,
    page: int,
    page_size: int,
) -> dict[str, Any]:
    """A `SeatPage`."""
    return {
        "section_id": section.section_id, "total_seats": section.capacity if section.kind == "seated" else 0,
        "page": page, "page_size": page_size,
        "seats": [_seat(layout, section, position, statuses.get(position, "blocked")) for position in positions],
    }  # fmt: skip


def _seat(layout: Layout, section: Section, position: int, status: str) -> dict[str, Any]:
    (row, label), traits = section.labels_of(position), section.traits_of(position)
    return {
        "seat_id": section.seat_id(position), "row": row, "label": label,
        "number": position % (section.seats_per_row + 1) + 1, "status": status,
        "price_minor": section.price_of(position), "traits": sorted(traits),
        "prices": layout.type_prices(section.priced_as(position), section, traits),
    }  # fmt: skip


# -- the requests ------------------------------------------------------------------------------------------------------


def layout_of(request: Request) -> tuple[State, Layout]:
    """Inventory's state, and the event that the path names. Raises `UnknownEvent`."""
    state: State = request.state
    return state, state.catalogue.layout(request.path["event_id"])


def document(body: bytes, cache_control: str, media_type: str = JSON_TYPE) -> Document:
    """An answer that is the same for everybody."""
    return Document(body, media_type, {"cache-control": cache_control, **NOSNIFF})


async def list_events(request: Request) -> Answer:
    """Rehearsals are not listed."""
    state, query = request.state, request.query(EventsQuery)
    await state.catalogue.check()
    page = PageRequest(URL(scope=request.scope), query.after, query.page_size, newest_first=False)
    found = event_page(state.catalogue.layouts(), page)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON,)))


def get_event(request: Request) -> Answer:
    state, layout = layout_of(request)

    def make() -> Document:
        return document(event_details(layout).model_dump_json().encode(), REVALIDATED)

    return state.documents.of(f"{layout.event_id} event", layout, make=make).answer(request.fields)


def list_sections(request: Request) -> Answer | Awaitable[Answer]:
    """What is left, at most a quarter of a second old: the same bytes for everybody."""
    state, layout = layout_of(request)
    frame = state.availability.latest(layout.event_id)
    return _sections(request, layout) if frame is None else _sections_answer(request, layout, frame)


async def _sections(request: Request, layout: Layout) -> Answer:
    return _sections_answer(request, layout, await request.state.availability.frame(layout))


def _sections_answer(request: Request, layout: Layout, frame: StockFrame) -> Answer:
    def make() -> Document:
        return document(orjson.dumps(section_list(layout, frame)), "public, max-age=1")

    documents: Documents = request.state.documents
    return documents.of(f"{layout.event_id} sections", layout, frame, make=make).answer(request.fields)


async def list_seats(request: Request) -> Answer:
    state, layout = layout_of(request)
    query = request.query(SeatsQuery)
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    section = layout.section(request.path["section_id"])
    positions = section.positions(page=query.page, page_size=query.page_size)
    statuses = {} if not positions else await seat_statuses(
        state.autocommit_db, state.redis_stock, layout.event_id, section.section_id, first=positions[0],
        last=positions[-1], jti=admission.jti,
    )  # fmt: skip
    if query.code is not None:
        state.code_tries.require(layout, admission.holder, query.code)
    shown = shown_to(layout, section, statuses, Fan(admission.lane, query.code))
    found = seat_page(layout, section, positions, shown, page=query.page, page_size=query.page_size)
    return compressed(request.fields, json_answer(found))


PATTERNS = {"event_id": EVENT_ID_PATTERN, "section_id": SECTION_ID_PATTERN}
EVENT = "/events/{event_id}"
_route = partial(FastRoute, "GET", tag="catalogue", patterns=PATTERNS)
FAST_ROUTES = [
    _route(
        "/events", list_events, summary="List events on sale", description=getdoc(list_events),
        query=EventsQuery, answers={200: ("The events", EventPage)},
    ),
    _route(EVENT, get_event, summary="Get an event", answers={200: ("The event", EventDetails)}),
    _route(
        f"{EVENT}/sections", list_sections, summary="List availability by section",
        answers={200: ("The sections", SectionList)},
    ),
    _route(
        f"{EVENT}/sections/{{section_id}}/seats", list_seats, summary="List the seats of a section", query=SeatsQuery,
        answers={200: ("The seats", SeatPage)},
    ),
]  # fmt: skip
