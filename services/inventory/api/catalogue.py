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
from services.inventory.redis_stock.seat_map import require_not_revoked, seat_statuses
from services.inventory.state import State
from shared.contracts.catalogue import (
    BrandDetails,
    EventCard,
    EventDetails,
    EventLimits,
    EventPage,
    SeatPage,
    SectionList,
    ShownPicture,
)
from shared.contracts.event_parts.brand import Brand
from shared.contracts.event_parts.hall_map import HallGeometry
from shared.contracts.fields import EVENT_ID_PATTERN, SECTION_ID_PATTERN, EventId
from shared.contracts.frames import StockFrame
from shared.errors.problems import NotFound
from shared.postgres.pages import PageRequest
from shared.routes import SECTION_ID
from shared.rules.seat_codes import encode_state
from shared.web.answers import JSON, NO_STORE, Answer, Document, Documents, compressed, fields_of, json_answer
from shared.web.built_files import IMMUTABLE
from shared.web.fast_routes import FastRoute
from shared.web.request import Field as HeaderField
from shared.web.request import Request

JSON_TYPE, REVALIDATED = "application/json", "public, no-cache"
NOSNIFF = {"x-content-type-options": "nosniff"}
# A picture that is opened by itself runs nothing and reaches nothing, whatever else the file may be. Other sites may
# show it: the pages that share a link, and the button that a promoter embeds.
INERT = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
}
SECTIONS_MAX = 50
URLS = {"help_url", "terms_url", "imprint_url", "privacy_url"}
PAGE_SIZE = Annotated[int, Field(ge=1, le=500)]


class SeatsQuery(BaseModel):
    """Which seats of a section."""

    page: int = Field(1, ge=1, le=10_000)
    page_size: PAGE_SIZE = 50


class EventsQuery(BaseModel):
    """Which events: those that follow on this one."""

    after: EventId | None = None
    page_size: PAGE_SIZE = 50


class VersionQuery(BaseModel):
    """The version that the address names."""

    v: str | None = Field(None, max_length=64)


class MapQuery(BaseModel):
    """The version of the map that the address names."""

    v: str | None = Field(None, max_length=64, description="`map_hash` of the event: cached for a year.")


class SectionsQuery(BaseModel):
    """The sections that are wanted."""

    sections: str | None = Field(
        None, pattern=rf"^{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}$", max_length=33 * SECTIONS_MAX,
        description=f"Only these sections: at most {SECTIONS_MAX}, separated by commas.",
    )  # fmt: skip


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
    brand = layout.brand
    return {
        "event_id": layout.event_id,
        "name": layout.name,
        "venue": layout.venue,
        "starts_at": layout.starts_at,
        "ends_at": layout.ends_at,
        "timezone": layout.timezone,
        "currency": layout.currency,
        "price_from_minor": min(section.price_from_minor for section in layout.sections.values()),
        "picture": brand.picture and _picture(layout, brand.picture.file, brand.picture.alt) if brand else None,
    }


def event_details(layout: Layout) -> EventDetails:
    limits = {name: getattr(layout, name) for name in EventLimits.model_fields}
    sections = [_section(section, layout.currency) for section in layout.sections.values()]
    facts = {**_card(layout), "limits": limits, "sections": sections, "map_hash": layout.map_hash}
    return EventDetails.model_validate({**facts, "brand": layout.brand and _brand(layout, layout.brand)})


def _picture(layout: Layout, name: str, alt: str) -> ShownPicture | None:
    """None while this process has not read it."""
    stored = layout.pictures.get(name)
    if stored is None:
        return None
    url = f"/events/{layout.event_id}/pictures/{stored.file}"
    return ShownPicture(url=url, width=stored.width, height=stored.height, alt=alt)


def _brand(layout: Layout, brand: Brand) -> BrandDetails:
    accent, accent_dark = brand.own_accents or (None, None)
    digest = brand.style_hash()
    return BrandDetails(
        **brand.model_dump(include={"name", "background", "background_dark", *URLS}),
        logo=_picture(layout, brand.logo, brand.name or "") if brand.logo else None,
        accent=accent, accent_dark=accent_dark,
        stylesheet=f"/e/{layout.event_id}/brand.css?v={digest}" if digest else None,
    )  # fmt: skip


def _section(section: Section, currency: str) -> dict[str, Any]:
    is_seated = section.kind == "seated"
    return {
        "section_id": section.section_id, "name": section.name, "kind": section.kind, "type": section.type,
        "capacity": section.capacity, "price_minor": section.price_from_minor,
        "regular_price_minor": section.price_minor, "currency": currency,
        "price_levels": [
            {"name": tier.name, "rows": [tier.first, tier.last], "price_minor": tier.price_minor}
            for tier in section.price_tiers
        ],
        "rows": section.rows if is_seated else None, "seats_per_row": section.seats_per_row if is_seated else None,
    }  # fmt: skip


def section_list(layout: Layout, frame: StockFrame) -> dict[str, Any]:
    """A `SectionList`."""
    counts = {section.section_id: section for section in frame.sections}
    return {"sections": [
        {
            "section_id": s.section_id, "name": s.name, "kind": s.kind, "type": s.type, "total_seats": s.capacity,
            "available_seats": counts[s.section_id].available, "held_seats": counts[s.section_id].held,
            "price_minor": s.price_from_minor, "currency": layout.currency,
        }
        for s in layout.sections.values() if s.section_id in counts
    ]}  # fmt: skip


def seat_page(
    section: Section, positions: Sequence[int], statuses: Mapping[int, str], *, page: int, page_size: int
) -> dict[str, Any]:
    """A `SeatPage`."""
    return {
        "section_id": section.section_id, "total_seats": section.capacity if section.kind == "seated" else 0,
        "page": page, "page_size": page_size,
        "seats": [_seat(section, position, statuses.get(position, "blocked")) for position in positions],
    }  # fmt: skip


def _seat(section: Section, position: int, status: str) -> dict[str, Any]:
    row, label = section.labels_of(position)
    return {
        "seat_id": section.seat_id(position), "row": row, "label": label,
        "number": position % (section.seats_per_row + 1) + 1, "status": status,
        "price_minor": section.price_of(position),
    }  # fmt: skip


# -- the requests ------------------------------------------------------------------------------------------------------


def _layout(request: Request) -> tuple[State, Layout]:
    state: State = request.state
    return state, state.catalogue.layout(request.path["event_id"])


def _document(body: bytes, cache_control: str, media_type: str = JSON_TYPE) -> Document:
    return Document(body, media_type, {"cache-control": cache_control, **NOSNIFF})


async def list_events(request: Request) -> Answer:
    """Rehearsals are not listed."""
    state, query = request.state, request.query(EventsQuery)
    await state.catalogue.check()
    page = PageRequest(URL(scope=request.scope), query.after, query.page_size, newest_first=False)
    found = event_page(state.catalogue.layouts(), page)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON,)))


def get_event(request: Request) -> Answer:
    state, layout = _layout(request)

    def make() -> Document:
        return _document(event_details(layout).model_dump_json().encode(), REVALIDATED)

    return state.documents.of(f"{layout.event_id} event", layout, make=make).answer(request.fields)


def list_sections(request: Request) -> Answer | Awaitable[Answer]:
    """What is left, at most a quarter of a second old: the same bytes for everybody."""
    state, layout = _layout(request)
    frame = state.availability.latest(layout.event_id)
    return _sections(request, layout) if frame is None else _sections_answer(request, layout, frame)


async def _sections(request: Request, layout: Layout) -> Answer:
    return _sections_answer(request, layout, await request.state.availability.frame(layout))


def _sections_answer(request: Request, layout: Layout, frame: StockFrame) -> Answer:
    def make() -> Document:
        return _document(orjson.dumps(section_list(layout, frame)), "public, max-age=1")

    documents: Documents = request.state.documents
    return documents.of(f"{layout.event_id} sections", layout, frame, make=make).answer(request.fields)


def get_map(request: Request) -> Answer:
    state, layout = _layout(request)
    lasting = IMMUTABLE if request.query(MapQuery).v == layout.map_hash else REVALIDATED
    name = f"{layout.event_id} map {lasting}"
    return state.documents.of(name, layout, make=lambda: _document(layout.map, lasting)).answer(request.fields)


def get_stylesheet(request: Request) -> Answer:
    """The colours and fonts of the brand, which the pages load after their own style sheet."""
    state, layout = _layout(request)
    brand = layout.brand
    if brand is None or (digest := brand.style_hash()) is None:
        raise NotFound
    lasting = IMMUTABLE if request.query(VersionQuery).v == digest else REVALIDATED

    def make() -> Document:
        return _document(brand.stylesheet().encode(), lasting, "text/css; charset=utf-8")

    return state.documents.of(f"{layout.event_id} style {lasting}", layout, make=make).answer(request.fields)


async def get_picture(request: Request) -> Answer:
    """Its address is in the event's details, and changes with its content."""
    state, layout = _layout(request)
    stored = next((one for one in layout.pictures.values() if one.file == request.path["file"]), None)
    if stored is None:
        raise NotFound
    etag = f'"{stored.file}"'
    kept = fields_of({"cache-control": IMMUTABLE, "etag": etag, **NOSNIFF, **INERT})
    if etag in (request.header(b"if-none-match") or ""):
        return Answer(304, b"", kept)
    content = await state.pictures.content(layout.event_id, stored.digest)
    found = Answer(200, content, ((b"content-type", stored.media_type.encode()), *kept))
    return compressed(request.fields, found) if stored.media_type == SVG else found


async def get_map_state(request: Request) -> Answer:
    """`OSS1`, then epoch (4 bytes), version (8) and number of seats (4), big-endian, then two bits a seat in map order,
    four seats a byte, the first in its lowest bits: 0 free, 1 held, 2 sold, 3 not for sale.
    """
    state, layout = _layout(request)
    sections = request.query(SectionsQuery).sections
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    names = [layout.section(name, "seated").section_id for name in sections.split(",")] if sections else layout.seated
    await require_not_revoked(state.autocommit_db, state.redis_stock, layout.event_id, admission.jti)
    seats = await state.seat_states.read(layout)
    kept: tuple[HeaderField, ...] = (NO_STORE,)
    if seats.version:
        etag = b'"%d.%d"' % (seats.epoch, seats.version)
        kept = ((b"cache-control", b"private, max-age=1"), (b"etag", etag))
        if etag in request.fields.get(b"if-none-match", b""):
            return Answer(304, b"", kept)
    body = encode_state(seats.epoch, seats.version, seats.of(names))
    return compressed(request.fields, Answer(200, body, ((b"content-type", OCTETS.encode()), *kept)))


async def list_seats(request: Request) -> Answer:
    state, layout = _layout(request)
    query = request.query(SeatsQuery)
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    section = layout.section(request.path["section_id"])
    positions = section.positions(page=query.page, page_size=query.page_size)
    statuses = {} if not positions else await seat_statuses(
        state.autocommit_db, state.redis_stock, layout.event_id, section.section_id, first=positions[0],
        last=positions[-1], jti=admission.jti,
    )  # fmt: skip
    found = seat_page(section, positions, statuses, page=query.page, page_size=query.page_size)
    return compressed(request.fields, json_answer(found))


SVG, OCTETS = "image/svg+xml", "application/octet-stream"
NOT_MODIFIED = {304: ("Not modified since If-None-Match", None)}
PATTERNS = {
    "event_id": EVENT_ID_PATTERN, "section_id": SECTION_ID_PATTERN, "file": r"^[0-9a-f]{24}\.[a-z]{3,4}$",
}  # fmt: skip
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
        f"{EVENT}/map", get_map, summary="Get the map of the hall", query=MapQuery,
        answers={200: ("The map", HallGeometry)},
    ),
    _route("/e/{event_id}/brand.css", get_stylesheet, in_schema=False),
    _route(
        f"{EVENT}/pictures/{{file}}", get_picture, summary="Get a picture of an event",
        description=getdoc(get_picture),
        answers={200: ("The picture", "image/*"), **NOT_MODIFIED},
    ),
    _route(
        f"{EVENT}/map/state", get_map_state, summary="Get the states of all seats", description=getdoc(get_map_state),
        query=SectionsQuery, answers={200: ("The states", OCTETS), **NOT_MODIFIED},
    ),
    _route(
        f"{EVENT}/sections/{{section_id}}/seats", list_seats, summary="List the seats of a section", query=SeatsQuery,
        answers={200: ("The seats", SeatPage)},
    ),
]  # fmt: skip
