"""The console's pages: one document for every screen, and assets whose names change with their content.

Nothing from elsewhere is loaded, no inline script or style runs, and markup is never made from text (Trusted Types).
"""

import re
from pathlib import Path

from shared.errors.problems import NotFound
from shared.routes import EVENT_ID
from shared.web.answers import Answer
from shared.web.fast_routes import FastRoute
from shared.web.pages.built_files import IMMUTABLE, built_file
from shared.web.request import Request

PAGES = Path(__file__).parents[1] / "pages" / "dist"
SECURITY = {
    "content-security-policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_event_id = re.compile(EVENT_ID)


async def index(request: Request) -> Answer:
    return await built_file(request.fields, PAGES, "index.html", {**SECURITY, "cache-control": "no-cache"})


async def screen(request: Request) -> Answer:
    """The same document: the page reads its address."""
    if not _event_id.fullmatch(request.path["event_id"]):
        raise NotFound
    return await index(request)


async def asset(request: Request) -> Answer:
    return await built_file(request.fields, PAGES, request.path["name"], {**SECURITY, "cache-control": IMMUTABLE})


FAST_ROUTES = [
    FastRoute("GET", path, handler, in_schema=False)
    for path, handler in (
        ("/console", index), ("/console/", index), ("/console/events/{event_id}", screen),
        ("/console/wall/{event_id}", screen), ("/console/assets/{name}", asset),
    )
]  # fmt: skip
