"""The console's pages: one document for every screen, and assets whose names change with their content.

Nothing from elsewhere is loaded, no inline script or style runs, and markup is never made from text (Trusted Types).
"""

import re
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from shared.errors.problems import NotFound
from shared.routes import EVENT_ID
from shared.web.pages.built_files import IMMUTABLE, built_file

router = APIRouter(include_in_schema=False)
PAGES = Path(__file__).parents[1] / "pages" / "dist"
SECURITY = {
    "content-security-policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_event_id = re.compile(EVENT_ID)


@router.get("/console")
@router.get("/console/")
async def index(request: Request) -> Response:
    return await built_file(request, PAGES, "index.html", {**SECURITY, "cache-control": "no-cache"})


@router.get("/console/events/{event_id}")
@router.get("/console/wall/{event_id}")
async def screen(event_id: str, request: Request) -> Response:
    """The same document: the page reads its address."""
    if not _event_id.fullmatch(event_id):
        raise NotFound
    return await index(request)


@router.get("/console/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    return await built_file(request, PAGES, name, {**SECURITY, "cache-control": IMMUTABLE})
