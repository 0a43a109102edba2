"""Fans' API for the catalogue: events, availability by section, and the seats of a section."""

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from services.inventory.api.auth import require_current_epoch
from services.inventory.api.schemas import (
    PAGE,
    PAGE_SIZE,
    event_details,
    event_page,
    seat_page,
    section_list,
)
from services.inventory.redis_stock.seat_map import require_not_revoked, seat_statuses
from services.inventory.state import StateDep
from shared.contracts.catalogue import EventDetails, EventPage, SeatPage, SectionList
from shared.contracts.event_parts.hall_geometry import HallGeometry
from shared.contracts.fields import EventId
from shared.errors.problems import NotFound
from shared.postgres.pages import PageRequest
from shared.routes import SECTION_ID
from shared.rules.seat_codes import encode_state
from shared.web.api_document import file_of
from shared.web.pages.built_files import IMMUTABLE
from shared.web.parameters import EventIdPath, SectionIdPath

router = APIRouter(tags=["catalogue"])
SECTIONS_MAX = 50
SectionsQuery = Annotated[
    str | None,
    Query(
        pattern=rf"^{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}$",
        max_length=33 * SECTIONS_MAX,
        description=f"Only these sections: at most {SECTIONS_MAX}, separated by commas.",
    ),
]
PictureFilePath = Annotated[str, Path(pattern=r"^[0-9a-f]{24}\.[a-z]{3,4}$")]
# A picture that is opened by itself runs nothing and reaches nothing, whatever else the file may be. Other sites may
# show it: the pages that share a link, and the button that a promoter embeds.
INERT = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
}
NO_MORE: Mapping[str, str] = {}


@router.get("/events", summary="List events on sale")
async def list_events(
    request: Request, state: StateDep, after: Annotated[EventId | None, Query()] = None,
    page_size: Annotated[PAGE_SIZE, Query()] = 50,
) -> EventPage:  # fmt: skip
    """Rehearsals are not listed."""
    await state.catalogue.check()
    return event_page(state.catalogue.layouts(), PageRequest(request.url, after, page_size, newest_first=False))


@router.get("/events/{event_id}", summary="Get an event")
async def get_event(state: StateDep, event_id: EventIdPath) -> EventDetails:
    return event_details(state.catalogue.layout(event_id))


@router.get("/events/{event_id}/sections", summary="List availability by section", response_model=SectionList)
async def list_sections(request: Request, state: StateDep, event_id: EventIdPath) -> Response:
    layout = state.catalogue.layout(event_id)
    listed = section_list(layout, await state.availability.frame(layout))
    return _cacheable(request, listed.model_dump_json().encode(), "public, max-age=1")


@router.get("/events/{event_id}/map", summary="Get the map of the hall", response_model=HallGeometry)
async def get_map(
    request: Request, state: StateDep, event_id: EventIdPath,
    v: Annotated[str | None, Query(max_length=64, description="`map_hash` of the event: cached for a year.")] = None,
) -> Response:  # fmt: skip
    layout = state.catalogue.layout(event_id)
    return _cacheable(request, layout.map, IMMUTABLE if v == layout.map_hash else "public, no-cache")


@router.get("/e/{event_id}/brand.css", include_in_schema=False)
async def get_stylesheet(
    request: Request, state: StateDep, event_id: EventIdPath, v: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """The colours and fonts of the brand, which the pages load after their own style sheet."""
    brand = state.catalogue.layout(event_id).brand
    if brand is None or (digest := brand.style_hash()) is None:
        raise NotFound
    lasting = IMMUTABLE if v == digest else "public, no-cache"
    return _cacheable(request, brand.stylesheet().encode(), lasting, media_type="text/css")


@router.get(
    "/events/{event_id}/pictures/{file}", summary="Get a picture of an event", response_class=Response,
    responses={**file_of("image/*"), 304: {"description": "Not modified since If-None-Match"}},
)  # fmt: skip
async def get_picture(request: Request, state: StateDep, event_id: EventIdPath, file: PictureFilePath) -> Response:
    """Its address is in the event's details, and changes with its content."""
    stored = next((one for one in state.catalogue.layout(event_id).pictures.values() if one.file == file), None)
    if stored is None:
        raise NotFound
    content = await state.pictures.content(event_id, stored.digest)
    return _cacheable(request, content, IMMUTABLE, media_type=stored.media_type, more=INERT)


@router.get(
    "/events/{event_id}/map/state", summary="Get the states of all seats", response_class=Response,
    responses={**file_of("application/octet-stream"), 304: {"description": "Not modified since If-None-Match"}},
)  # fmt: skip
async def get_map_state(
    request: Request, state: StateDep, event_id: EventIdPath, sections: SectionsQuery = None
) -> Response:
    """`OSS1`, then epoch (4 bytes), version (8) and number of seats (4), big-endian, then two bits a seat in map order,
    four seats a byte, the first in its lowest bits: 0 free, 1 held, 2 sold, 3 not for sale.
    """
    layout = state.catalogue.layout(event_id)
    admission = require_current_epoch(await state.authenticator.admitted(request, event_id), layout)
    names = [layout.section(name, "seated").section_id for name in sections.split(",")] if sections else layout.seated
    await require_not_revoked(state.autocommit_db, state.redis_stock, event_id, admission.jti)
    seats = await state.seat_states.read(layout)
    if not seats.version:
        headers = {"cache-control": "no-store"}
    else:
        headers = {"cache-control": "private, max-age=1", "etag": f'"{seats.epoch}.{seats.version}"'}
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
    body = encode_state(seats.epoch, seats.version, seats.of(names))
    return Response(body, headers=headers, media_type="application/octet-stream")


def _cacheable(
    request: Request, body: bytes, cache_control: str, *, media_type: str = "application/json",
    more: Mapping[str, str] = NO_MORE,
) -> Response:  # fmt: skip
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"cache-control": cache_control, "etag": etag, "x-content-type-options": "nosniff", **more}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


@router.get("/events/{event_id}/sections/{section_id}/seats", summary="List the seats of a section")
async def list_seats(
    request: Request,
    response: Response,
    state: StateDep,
    event_id: EventIdPath,
    section_id: SectionIdPath,
    page: Annotated[PAGE, Query()] = 1,
    page_size: Annotated[PAGE_SIZE, Query()] = 50,
) -> SeatPage:
    layout = state.catalogue.layout(event_id)
    admission = require_current_epoch(await state.authenticator.admitted(request, event_id), layout)
    section = layout.section(section_id)
    response.headers["cache-control"] = "no-store"
    positions = section.positions(page=page, page_size=page_size)
    statuses = {} if not positions else await seat_statuses(
        state.autocommit_db, state.redis_stock, event_id, section_id, first=positions[0], last=positions[-1],
        jti=admission.jti,
    )  # fmt: skip
    return seat_page(section, positions, statuses, page=page, page_size=page_size)
