"""`/problems/{slug}`: the page that the `type` of a problem document links to, as HTML or JSON.

`make api-documents` writes the catalogue from the problem classes of all services: the gateway imports none.
"""

import html
import json
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Path, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from services.gateway.api.pages import PAGES, SECURITY
from services.gateway.api.schemas import ProblemCatalogue, ProblemDescription
from shared.web.problem_page import wanted
from shared.web.problems import NotFound

HEADERS = {**SECURITY, "cache-control": "public, max-age=3600", "vary": "Accept"}
ADVICE = {
    401: "Send a valid token or cookie. An expired one stays expired; request a new one.",
    403: "Do not repeat the request: this caller may not do that now.",
    404: "Check the address and the id in it.",
    409: "Read the current state, then decide what to request.",
    410: "This has ended for good. Start again from the beginning.",
    412: "Read the current version, then send your change with it.",
    422: "Correct the value that `detail` names, then send the request again.",
    429: "Wait as long as Retry-After says, then repeat the request.",
    503: "Nothing was changed. Wait as long as Retry-After says, then repeat the request, with the same "
    "Idempotency-Key if it has one.",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/styles.css"></head>
<body><header class="top"><a class="brand" href="/"><img src="/static/icon.svg" width="28" height="28" alt="">Onsale</a>
</header><main id="main">{body}</main></body></html>
"""
router = APIRouter(tags=["problems"])


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Every problem by its slug, sorted by slug."""
    entries = json.loads((PAGES / "problems.json").read_text(encoding="utf-8"))
    return {entry["slug"]: entry for entry in entries}


@router.get("/problems", summary="List every problem", response_model=ProblemCatalogue)
async def every_problem(request: Request) -> Response:
    """Every `type` that a problem document may have; HTML for browsers, else JSON."""
    if not _wants_page(request):
        return JSONResponse({"problems": list(catalogue().values())}, headers=HEADERS)
    rows = "".join(
        f'<li><a href="/problems/{slug}">{slug}</a> ({entry["status"]}): {html.escape(entry["title"])}</li>'
        for slug, entry in catalogue().items()
    )
    return HTMLResponse(
        PAGE.format(title="Problems", body=f'<div class="intro"><h1>Problems</h1></div><ul>{rows}</ul>'),
        headers=HEADERS,
    )


@router.get("/problems/{slug}", summary="Describe a problem", response_model=ProblemDescription)
async def one_problem(request: Request, slug: str = Path(pattern="^[a-z-]{1,64}$")) -> Response:
    """What a problem means and what to do about it; HTML for browsers, else JSON."""
    entry = catalogue().get(slug)
    if entry is None:
        raise NotFound
    advice = ADVICE.get(entry["status"], "Correct the request before you send it again.")
    if not _wants_page(request):
        return JSONResponse({**entry, "type": f"/problems/{slug}", "advice": advice}, headers=HEADERS)
    status = f"{entry['status']} {HTTPStatus(entry['status']).phrase}"
    body = (
        f'<div class="intro"><h1>{html.escape(entry["title"])}</h1><p>{html.escape(entry["more"])}</p></div>'
        f'<div class="card"><h2>What to do</h2><p>{html.escape(advice)}</p></div>'
        f'<p class="small intro"><code>{slug}</code>, {status}. <a href="/problems">All problems</a></p>'
    )
    return HTMLResponse(PAGE.format(title=html.escape(entry["title"]), body=body), headers=HEADERS)


def _wants_page(request: Request) -> bool:
    return wanted(request.method, [value for name, value in request.headers.raw if name == b"accept"])
