"""The part of inventory: routes of maps, states of seats, style sheets and pictures, and what is opened for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from inspect import getdoc
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Path, Response
from fastapi import Request as FormalRequest
from pydantic import BaseModel, Field

from features.hall.brand import PICTURE_NAME, PictureStored
from features.hall.hall_map import HallGeometry, OpenSeats
from features.hall.inventory.events import EventHall, HallOfFile, Pictures, halls
from features.hall.inventory.seat_states import SeatStates
from features.hall.seat_codes import SeatsFrame, encode_state
from services.inventory.api.catalogue import NOSNIFF, REVALIDATED, document, layout_of
from services.inventory.auth import require_current_epoch
from services.inventory.layout.layout import EventCache
from services.inventory.layout.price_types import Fan
from services.inventory.redis_stock.seat_map import require_not_revoked
from services.inventory.state import State
from shared.concurrency.background import Loops
from shared.contracts.fields import EVENT_ID_PATTERN, TypedCode
from shared.contracts.inventory import ReadStock
from shared.errors.problems import NotFound
from shared.messaging.snapshots import SnapshotPublisher
from shared.routes import SECTION_ID
from shared.security.auth import AnAdmin, Viewer
from shared.web.answers import NO_STORE, Answer, Document, compressed, fields_of
from shared.web.api_document import file_of
from shared.web.built_files import IMMUTABLE
from shared.web.fast_routes import FastRoute
from shared.web.internal_api import InternalApi
from shared.web.parts import Part, opened
from shared.web.request import EventIdPath, ReasonQuery, Request
from shared.web.request import Field as HeaderField

# A picture that is opened by itself runs nothing and reaches nothing, whatever else the file may be. Other sites may
# show it: the pages that share a link, and the button that a promoter embeds.
INERT = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
}
SECTIONS_MAX = 50


class HallParts(NamedTuple):
    """What the part keeps open in inventory, beside the catalogue."""

    catalogue: EventCache
    pictures: Pictures
    seat_states: SeatStates


@asynccontextmanager
async def open_hall(state: State, _: Loops) -> AsyncIterator[HallParts]:
    """Event files may have a map and a brand, and streams show seats."""
    seat_states = SeatStates(state.db, state.redis_stock, SnapshotPublisher(state.redis_stock.redis))
    state.event_file_parts.append(HallOfFile())
    state.catalogue.readers.append(halls)
    state.availability.watched = seat_states
    pictures = Pictures(state.db)
    try:
        yield HallParts(state.catalogue, pictures, seat_states)
    finally:
        await pictures.close()


class MapQuery(BaseModel):
    """The version that the address names, of the map or of the style sheet."""

    v: str | None = Field(None, max_length=64, description="`map_hash` of the event: cached for a year.")


class SectionsQuery(BaseModel):
    """The sections that are wanted."""

    sections: str | None = Field(
        None, pattern=rf"^{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}$", max_length=33 * SECTIONS_MAX,
        description=f"Only these sections: at most {SECTIONS_MAX}, separated by commas.",
    )  # fmt: skip


class CodeQuery(BaseModel):
    """The code that the fan has typed."""

    code: TypedCode = Field(None, description="Opens the seats that are reserved for it.")


# -- for fans ----------------------------------------------------------------------------------------------------------


def get_map(request: Request) -> Answer:
    state, layout = layout_of(request)
    encoded, digest = layout.part(EventHall).map(layout)
    lasting = IMMUTABLE if request.query(MapQuery).v == digest else REVALIDATED
    name = f"{layout.event_id} map {lasting}"
    return state.documents.of(name, layout, make=lambda: document(encoded, lasting)).answer(request.fields)


def get_stylesheet(request: Request) -> Answer:
    """The colours and fonts of the brand, which the pages load after their own style sheet."""
    state, layout = layout_of(request)
    brand = layout.part(EventHall).brand
    if brand is None or (digest := brand.style_hash()) is None:
        raise NotFound
    lasting = IMMUTABLE if request.query(MapQuery).v == digest else REVALIDATED

    def make() -> Document:
        return document(brand.stylesheet().encode(), lasting, "text/css; charset=utf-8")

    return state.documents.of(f"{layout.event_id} style {lasting}", layout, make=make).answer(request.fields)


async def get_picture(request: Request) -> Answer:
    """Its address is in the event's details, and changes with its content."""
    _, layout = layout_of(request)
    pictures = layout.part(EventHall).pictures.values()
    stored = next((one for one in pictures if one.file == request.path["file"]), None)
    if stored is None:
        raise NotFound
    etag = f'"{stored.file}"'
    kept = fields_of({"cache-control": IMMUTABLE, "etag": etag, **NOSNIFF, **INERT})
    if etag in (request.header(b"if-none-match") or ""):
        return Answer(304, b"", kept)
    content = await request.part(HallParts).pictures.content(layout.event_id, stored.digest)
    found = Answer(200, content, ((b"content-type", stored.media_type.encode()), *kept))
    return compressed(request.fields, found) if stored.media_type == SVG else found


async def get_map_state(request: Request) -> Answer:
    """`OSS1`, then epoch (4 bytes), version (8) and number of seats (4), big-endian, then two bits a seat in map order,
    four seats a byte, the first in its lowest bits: 0 free, 1 held, 2 sold, 3 not for sale.
    """
    state, layout = layout_of(request)
    sections = request.query(SectionsQuery).sections
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    names = [layout.section(name, "seated").section_id for name in sections.split(",")] if sections else layout.seated
    await require_not_revoked(state.autocommit_db, state.redis_stock, layout.event_id, admission.jti)
    seats = await request.part(HallParts).seat_states.read(layout)
    kept: tuple[HeaderField, ...] = (NO_STORE,)
    if seats.version:
        etag = b'"%d.%d"' % (seats.epoch, seats.version)
        kept = ((b"cache-control", b"private, max-age=1"), (b"etag", etag))
        if etag in request.fields.get(b"if-none-match", b""):
            return Answer(304, b"", kept)
    body = encode_state(seats.epoch, seats.version, seats.of(names))
    return compressed(request.fields, Answer(200, body, ((b"content-type", OCTETS.encode()), *kept)))


async def get_open_seats(request: Request) -> Answer:
    """What is reserved for this code, or for the lane by which the fan came. All others see these seats as held."""
    state, layout = layout_of(request)
    code = request.query(CodeQuery).code
    admission = require_current_epoch(await state.authenticator.admitted(request, layout.event_id), layout)
    await require_not_revoked(state.autocommit_db, state.redis_stock, layout.event_id, admission.jti)
    if code is not None:
        state.code_tries.require(layout, admission.holder, code)
    seats = await request.part(HallParts).seat_states.read(layout)
    mine = layout.exclusive.open_to(Fan(admission.lane, code))

    def make() -> Document:
        found = seats.open_seats(layout, (each.places for each in mine))
        return document(found.model_dump_json().encode(), "private, no-cache")

    name = f"{layout.event_id} reserved {','.join(each.name for each in mine)}"
    return state.documents.of(name, layout, seats.kept, make=make).answer(request.fields)


SVG, OCTETS = "image/svg+xml", "application/octet-stream"
NOT_MODIFIED = {304: ("Not modified since If-None-Match", None)}
PATTERNS = {"event_id": EVENT_ID_PATTERN, "file": r"^[0-9a-f]{24}\.[a-z]{3,4}$"}
EVENT = "/events/{event_id}"
_route = partial(FastRoute, "GET", tag="catalogue", patterns=PATTERNS)
FAST_ROUTES = [
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
        f"{EVENT}/map/reserved", get_open_seats, summary="Get the reserved seats that are open to you",
        description=getdoc(get_open_seats), query=CodeQuery, answers={200: ("The seats", OpenSeats)},
    ),
]  # fmt: skip

# -- for operators -----------------------------------------------------------------------------------------------------

router = APIRouter(prefix="/admin/inventory", tags=["admin"])
PicturesDep = Annotated[HallParts, Depends(opened(HallParts))]
PictureNamePath = Annotated[str, Path(pattern=f"^{PICTURE_NAME}$", max_length=64)]
PICTURE_BODY = {"requestBody": {"required": True, "content": {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}}}  # fmt: skip


@router.put(
    "/events/{event_id}/pictures/{name}",
    operation_id="put_picture",
    summary="Upload a picture",
    openapi_extra=PICTURE_BODY,
)
async def put_picture(
    operator: AnAdmin, request: FormalRequest, hall: PicturesDep, event_id: EventIdPath, name: PictureNamePath,
    reason: ReasonQuery = None,
) -> PictureStored:  # fmt: skip
    """The picture that the event file calls so: PNG, JPEG, WebP, AVIF or SVG of at most 256 KiB, at most eight of an
    event. Uploading it again changes nothing; another one replaces it. The event may come later.
    """
    content = await request.body()
    return await hall.pictures.store(event_id, name, content, actor=operator.name, reason=reason)


@router.get(
    "/events/{event_id}/pictures/{name}", operation_id="read_picture", summary="Get an uploaded picture",
    responses=file_of("image/*"), response_class=Response,
)  # fmt: skip
async def read_picture(operator: Viewer, hall: PicturesDep, event_id: EventIdPath, name: PictureNamePath) -> Response:
    media_type, content = await hall.pictures.read(event_id, name)
    return Response(content, media_type=media_type, headers={"cache-control": "no-store", **INERT})


# -- for the notifier --------------------------------------------------------------------------------------------------

INTERNAL = InternalApi()


@INTERNAL.operation("/seats", ReadStock, part=HallParts)
async def read_seats(hall: HallParts, question: ReadStock) -> SeatsFrame:
    return await hall.seat_states.frame(hall.catalogue.layout(question.event_id))


PART = Part(routers=[router], fast_routes=FAST_ROUTES, internal_api=INTERNAL, open=open_hall)
