"""The fans' pages: four HTML documents and their assets, loaded from this origin only.

The language that an address names (`?lang=`) is kept in a cookie, so that the browser's next pages have it. Scripts may
read it: a balancer's page of an outage chooses by it.
"""

import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from services.gateway.api.plain_pages import (
    has_no_scripts,
    plain_event_page,
    plain_order_page,
    waiting_page,
)
from services.gateway.documents import BUILT, HEADERS, PAGES, document, rendered
from services.gateway.settings import Settings
from services.gateway.state import State
from shared.errors.problems import NoAnswer, NotFound, Overloaded, Unavailable, UnknownEvent, UpstreamFailed
from shared.routes import EVENT_ID, REFERENCE
from shared.security.credentials import set_cookie
from shared.web.fast_routes import QUIET_KEY
from shared.web.languages import LANGUAGE_COOKIE, language_of, named_language
from shared.web.pages.built_files import IMMUTABLE, assets, built_file
from shared.web.pages.document import Document

router = APIRouter(include_in_schema=False)
_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)
COOKIE_S = 365 * 86_400


class Files(StaticFiles):
    """Static files with an ETag and a policy that allows no foreign scripts."""

    def __init__(self, directory: Path, *, cache_control: str) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._headers = {**HEADERS, "cache-control": cache_control}

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(self._headers)
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        await super().__call__(scope, receive, send)


API_DOCUMENTS = Files(PAGES / "openapi", cache_control="no-cache")
MOUNTS: list[BaseRoute] = [Mount("/openapi", API_DOCUMENTS, name="openapi")]


@cache
def _document(template: str, language: str) -> Document:
    """A page that is the same for everybody who reads this language; without scripts, an order's names another."""
    own = rendered("go_on.html", language)
    return document(template, language, slot=lambda name: own)


def _answer(request: Request, template: str) -> Response:
    response = _document(template, language_of(request.scope)).response(request)
    _remember_language(request, response, request.app.state.deps.settings)
    return response


@router.get("/")
async def index(request: Request) -> Response:
    """The list of events; `after` names the last one of the page before."""
    after = request.query_params.get("after", "")
    state: State = request.app.state.deps
    known = after if _event_id.fullmatch(after) else None
    page = await state.catalogue_pages.page(language_of(request.scope), known)
    response = page.response(request)
    _remember_language(request, response, state.settings)
    return response


@router.get("/e/{event_id}")
async def event(event_id: str, request: Request) -> Response:
    """The page of one on-sale. It sets the cookie with the browser's secret, which binds the browser's join. While the
    line is not available the page is sent nevertheless, and polls. A fan's own part is put in for this fan alone.
    """
    if not _event_id.fullmatch(event_id):
        raise UnknownEvent
    request.scope[QUIET_KEY] = True
    state: State = request.app.state.deps
    with suppress(Unavailable, Overloaded, NoAnswer, UpstreamFailed):
        await state.line_cache.line(event_id)
    response = await _event_page(state, event_id, request)
    _remember_language(request, response, state.settings)
    secret = state.token_reader.new_browser_cookie(request.scope)
    if secret is not None:
        response.headers.append("set-cookie", secret)
        if "no-store" not in response.headers["cache-control"]:
            response.headers["cache-control"] = "private, no-cache"
    return response


@router.get("/o")
async def orders(request: Request) -> Response:
    """The orders of this browser."""
    return _answer(request, "orders.html")


async def _event_page(state: State, event_id: str, request: Request) -> Response:
    if has_no_scripts(request):
        return await plain_event_page(state, event_id, request)
    language, may_have_place = language_of(request.scope), state.token_reader.may_have_place(request.scope, event_id)
    if may_have_place and (own := await waiting_page(state, event_id, request)) is not None:
        return own
    return (await state.event_pages.page(event_id, language, may_have_place=may_have_place)).response(request)


@router.get("/o/{reference}")
async def order(reference: str, request: Request) -> Response:
    if not _reference.fullmatch(reference):
        raise NotFound("No order has this address. Use the whole link from your e-mail.")
    if not has_no_scripts(request):
        return _answer(request, "order.html")
    response = await plain_order_page(request.app.state.deps, reference, request)
    _remember_language(request, response, request.app.state.deps.settings)
    return response


@router.get("/static/{name}")
async def asset(name: str, request: Request) -> Response:
    """A file whose name changes with its content."""
    request.scope[QUIET_KEY] = True
    return await built_file(request, BUILT, name, {**HEADERS, "cache-control": IMMUTABLE})


@router.get("/favicon.ico")
async def favicon(request: Request) -> Response:
    return await built_file(request, BUILT, assets(BUILT)["icon.svg"].name, HEADERS)


def _remember_language(request: Request, response: Response, settings: Settings) -> None:
    """Has the browser keep the language that the address names."""
    named = named_language(request.scope)
    if named is not None:
        text = set_cookie(LANGUAGE_COOKIE, named, max_age_s=COOKIE_S, secure=settings.secure_cookies, readable=True)
        response.headers.append("set-cookie", text)
        response.headers["cache-control"] = "private, no-cache"
