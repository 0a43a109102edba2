"""`/problems/{slug}`: the page that the `type` of a problem document links to, as HTML or JSON.

`make api-documents` writes the catalogue from the problem classes of all services: the gateway imports none.
"""

import json
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, JSONResponse, Response

from features.pages.gateway import documents
from features.pages.problem_page import wanted
from shared.errors.problems import NotFound
from shared.words.words import DEFAULT_LANGUAGE

HEADERS = {**documents.HEADERS, "cache-control": "public, max-age=3600", "vary": "Accept"}
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
router = APIRouter(tags=["problems"])


class ProblemEntry(BaseModel):
    """One kind of problem document: what it means."""

    slug: str
    status: int
    title: str
    more: str
    retry_after_s: float | None
    service: str | None


class ProblemCatalogue(BaseModel):
    """All kinds of problem documents, sorted by slug."""

    problems: list[ProblemEntry]


class ProblemDescription(ProblemEntry):
    """One kind of problem document, with its `type` and what to do about it."""

    type: str
    advice: str


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Every problem by its slug, sorted by slug."""
    entries = json.loads((documents.PAGES / "problems.json").read_text(encoding="utf-8"))
    return {entry["slug"]: entry for entry in entries}


@router.get("/problems", summary="List every problem", response_model=ProblemCatalogue)
async def every_problem(request: Request) -> Response:
    """Every `type` that a problem document may have; HTML for browsers, else JSON."""
    if not _wants_page(request):
        return JSONResponse({"problems": list(catalogue().values())}, headers=HEADERS)
    return _page("problems.html", problems=catalogue().values())


@router.get("/problems/{slug}", summary="Describe a problem", response_model=ProblemDescription)
async def one_problem(request: Request, slug: str = Path(pattern="^[a-z-]{1,64}$")) -> Response:
    """What a problem means and what to do about it; HTML for browsers, else JSON."""
    entry = catalogue().get(slug)
    if entry is None:
        raise NotFound
    advice = ADVICE.get(entry["status"], "Correct the request before you send it again.")
    if not _wants_page(request):
        return JSONResponse({**entry, "type": f"/problems/{slug}", "advice": advice}, headers=HEADERS)
    return _page("problem.html", problem=entry, phrase=HTTPStatus(entry["status"]).phrase, advice=advice)


def _page(template: str, **values: Any) -> Response:
    """In English, as the rest of the API's reference."""
    return HTMLResponse(documents.rendered(template, DEFAULT_LANGUAGE, **values), headers=HEADERS)


def _wants_page(request: Request) -> bool:
    return wanted(request.method, [value for name, value in request.headers.raw if name == b"accept"])
