"""The console's pages: one document for every screen, and assets whose names change with their content.

Nothing from elsewhere is loaded, no inline script or style runs, and markup is never made from text (Trusted Types).
"""

import re
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from services.console.state import StateDep
from shared.web.problems import NotFound
from shared.web.routes import EVENT_ID

router = APIRouter(include_in_schema=False)
SECURITY = {
    "content-security-policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
IMMUTABLE = "public, max-age=31536000, immutable"
MEDIA_TYPES = {
    ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2", ".png": "image/png",
    ".txt": "text/plain", ".json": "application/json", ".html": "text/html",
}  # fmt: skip
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_name, _event_id = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"), re.compile(EVENT_ID)


@router.get("/console")
@router.get("/console/")
async def index(request: Request, state: StateDep) -> Response:
    return _file(request, state.settings.pages_dir, "index.html", cache_control="no-cache")


@router.get("/console/events/{event_id}")
@router.get("/console/wall/{event_id}")
async def screen(event_id: str, request: Request, state: StateDep) -> Response:
    """The same document: the page reads its address."""
    if not _event_id.fullmatch(event_id):
        raise NotFound
    return await index(request, state)


@router.get("/console/assets/{name}")
async def asset(name: str, request: Request, state: StateDep) -> Response:
    return _file(request, state.settings.pages_dir, name, cache_control=IMMUTABLE)


def _file(request: Request, folder: Path, name: str, *, cache_control: str) -> Response:
    """A file of the folder, compressed beforehand where the browser takes it. Raises `NotFound`."""
    path = folder / name
    media_type = MEDIA_TYPES.get(path.suffix)
    if not _name.fullmatch(name) or media_type is None or not path.is_file():
        raise NotFound
    headers = {**SECURITY, "cache-control": cache_control, "vary": "accept-encoding"}
    accepted = {part.partition(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")}
    for encoding, suffix in ENCODINGS:
        compressed = path.with_name(name + suffix)
        if encoding in accepted and compressed.is_file():
            path, headers["content-encoding"] = compressed, encoding
            break
    return FileResponse(path, headers=headers, media_type=media_type)
