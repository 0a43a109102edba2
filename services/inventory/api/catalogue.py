"""What fans can look at: the catalogue, what is left, and the seats of a section."""

import hashlib
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import text

from services.inventory.api.auth import require_current_epoch
from services.inventory.api.schemas import PAGE, PAGE_SIZE, event_body, event_card
from services.inventory.catalogue.layout import Layout, Section
from services.inventory.redis_keys import Keys
from services.inventory.state import InRoom, State
from services.inventory.stock.snapshot import MARKS
from shared.redis.client import REDIS_AWAY
from shared.web.fields import EventIdPath, SectionIdPath
from shared.web.problems import BadCredential

router = APIRouter(tags=["catalogue"])
SHOWN = {".": "available", "h": "reserved", "s": "sold", "x": "blocked"}
GIVEN_BACK = "This pass has done its work; its slot was given back."
REVOKED = text("SELECT EXISTS (SELECT FROM inventory.revoked_pass WHERE event_id = :event_id AND jti = :jti)")
SEAT_WORDS = text(
    "SELECT position, status FROM inventory.seat WHERE event_id = :event_id AND section_id = :section_id "
    "AND position BETWEEN :first AND :last"
)


@router.get("/events", summary="List events on sale")
async def events(
    inventory: InRoom, page: Annotated[PAGE, Query()] = 1, page_size: Annotated[PAGE_SIZE, Query()] = 50
) -> dict[str, Any]:
    await inventory.catalogue.check()
    layouts = sorted(inventory.catalogue.layouts(), key=lambda layout: (layout.starts_at, layout.event_id))
    start = (page - 1) * page_size
    more = len(layouts) > start + page_size
    cards = [event_card(layout) for layout in layouts[start : start + page_size]]
    return {"events": cards, "next": f"/events?page={page + 1}&page_size={page_size}" if more else None}


@router.get("/events/{event_id}", summary="Get an event")
async def event(inventory: InRoom, event_id: EventIdPath) -> dict[str, Any]:
    return event_body(inventory.catalogue.layout(event_id))


@router.get("/events/{event_id}/sections", summary="List availability by section")
async def sections(request: Request, inventory: InRoom, event_id: EventIdPath) -> Response:
    layout = inventory.catalogue.layout(event_id)
    frame = await inventory.board.frame(layout)
    counts = {section.section_id: section for section in frame.sections}
    listed = [
        {
            "section_id": s.section_id, "name": s.name, "kind": s.kind, "type": s.type, "total_seats": s.capacity,
            "available_seats": counts[s.section_id].available, "held_seats": counts[s.section_id].held,
            "price_minor": s.price_from_minor, "currency": layout.currency,
        }
        for s in layout.sections.values() if s.section_id in counts
    ]  # fmt: skip
    return _cacheable(request, orjson.dumps({"sections": listed}))


def _cacheable(request: Request, body: bytes) -> Response:
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"cache-control": "public, max-age=1", "etag": etag}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@router.get("/events/{event_id}/sections/{section_id}/seats", summary="List the seats of a section")
async def seats(
    request: Request,
    response: Response,
    inventory: InRoom,
    event_id: EventIdPath,
    section_id: SectionIdPath,
    page: Annotated[PAGE, Query()] = 1,
    page_size: Annotated[PAGE_SIZE, Query()] = 50,
) -> dict[str, Any]:
    layout = inventory.catalogue.layout(event_id)
    admission = require_current_epoch(await inventory.admissions.admitted(request, event_id), layout)
    section = layout.section(section_id)
    response.headers["cache-control"] = "no-store"
    total = section.capacity if section.kind == "seated" else 0
    ranks = range(min((page - 1) * page_size, total), min(page * page_size, total))
    words = await _words(inventory, layout, section, ranks, admission.jti) if ranks else {}
    listed = [
        {
            "seat_id": section.seat_id(position), "row": str(rank // section.seats_per_row + 1),
            "number": rank % section.seats_per_row + 1, "status": words.get(position, "blocked"),
            "price_minor": section.price_of(position),
        }
        for rank in ranks for position in [rank + rank // section.seats_per_row]
    ]  # fmt: skip
    return {"section_id": section_id, "total_seats": total, "page": page, "page_size": page_size, "seats": listed}


async def _words(inventory: State, layout: Layout, section: Section, ranks: range, jti: str) -> dict[int, str]:
    """Status by position: from the gate, or from the ledger while that is not ready. Raises `BadCredential` for a pass
    that was given back.
    """
    first, last = ranks[0] + ranks[0] // section.seats_per_row, ranks[-1] + ranks[-1] // section.seats_per_row
    keys = Keys.of(layout.event_id)
    try:
        pipe = inventory.redis_stock.redis.pipeline(transaction=True)
        pipe.hget(keys.meta, "ready").getrange(keys.map + section.section_id, first, last).zscore(keys.revoked, jti)
        ready, marks, revoked = await pipe.execute()
        if ready == b"1" and revoked is not None:
            raise BadCredential(GIVEN_BACK)
        if ready == b"1" and len(marks) == last - first + 1:
            return {first + i: SHOWN.get(mark, "") for i, mark in enumerate(marks.decode())}
    except REDIS_AWAY:
        pass
    which = {"event_id": layout.event_id, "section_id": section.section_id, "first": first, "last": last}
    async with inventory.reading.connect() as connection:
        if await connection.scalar(REVOKED, {"event_id": layout.event_id, "jti": jti}):
            raise BadCredential(GIVEN_BACK)
        rows = await connection.execute(SEAT_WORDS, which)
        return {row.position: SHOWN[MARKS[row.status]] for row in rows}
