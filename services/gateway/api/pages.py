"""The fans' pages: four HTML documents and their assets, loaded from this origin only.

The language that an address names (`?lang=`) is kept in a cookie, so that the browser's next pages have it. Scripts may
read it: a balancer's page of an outage chooses by it.
"""

import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from services.gateway.api.plain_pages import (
    has_no_scripts,
    plain_event_page,
    plain_order_page,
    waiting_page,
)
from services.gateway.documents import BUILT, HEADERS, PAGES, document, rendered
from services.gateway.state import State
from shared.errors.problems import NoAnswer, NotFound, Overloaded, Unavailable, UnknownEvent, UpstreamFailed
from shared.routes import EVENT_ID, REFERENCE
from shared.security.tokens import set_cookie
from shared.web.answers import Answer, Document
from shared.web.fast_routes import FastRoute
from shared.web.pages.built_files import IMMUTABLE, assets, built_file
from shared.web.request import LANGUAGE_COOKIE, Request, language_of, named_language

_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)
COOKIE_S = 365 * 86_400
PRIVATE = (b"cache-control", b"private, no-cache")


class Files(StaticFiles):
    """Static files with an ETag and a policy that allows no foreign scripts."""

    def __init__(self, directory: Path, *, cache_control: str) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._headers = {**HEADERS, "cache-control": cache_control}

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(self._headers)
        return response


API_DOCUMENTS = Files(PAGES / "openapi", cache_control="no-cache")
MOUNTS: list[BaseRoute] = [Mount("/openapi", API_DOCUMENTS, name="openapi")]


@cache
def _document(template: str, language: str) -> Document:
    """A page that is the same for everybody who reads this language; without scripts, an order's names another."""
    own = rendered("go_on.html", language)
    return document(template, language, slot=lambda name: own)


def _page(request: Request, template: str) -> Answer:
    page = _document(template, language_of(request.scope)).answer(request.fields)
    return _kept(request, page)


async def index(request: Request) -> Answer:
    """The list of events; `after` names the last one of the page before."""
    after = request.parameters.get("after", "")
    state: State = request.state
    known = after if _event_id.fullmatch(after) else None
    page = await state.catalogue_pages.page(language_of(request.scope), known)
    return _kept(request, page.answer(request.fields))


async def event(request: Request) -> Answer:
    """The page of one on-sale. It sets the cookie with the browser's secret, which binds the browser's join. While the
    line is not available the page is sent nevertheless, and polls. A fan's own part is put in for this fan alone.
    """
    event_id = request.path["event_id"]
    if not _event_id.fullmatch(event_id):
        raise UnknownEvent
    state: State = request.state
    with suppress(Unavailable, Overloaded, NoAnswer, UpstreamFailed):
        await state.line_cache.line(event_id)
    secret = state.token_reader.new_browser_cookie(request.scope)
    return _kept(request, await _event_page(state, event_id, request), *([secret] if secret is not None else ()))


def orders(request: Request) -> Answer:
    """The orders of this browser."""
    return _page(request, "orders.html")


async def _event_page(state: State, event_id: str, request: Request) -> Answer:
    if has_no_scripts(request):
        return await plain_event_page(state, event_id, request)
    language, may_have_place = language_of(request.scope), state.token_reader.may_have_place(request.scope, event_id)
    if may_have_place and (own := await waiting_page(state, event_id, request)) is not None:
        return own
    page = await state.event_pages.page(event_id, language, may_have_place=may_have_place)
    return page.answer(request.fields)


async def order(request: Request) -> Answer:
    reference = request.path["reference"]
    if not _reference.fullmatch(reference):
        raise NotFound("No order has this address. Use the whole link from your e-mail.")
    if not has_no_scripts(request):
        return _page(request, "order.html")
    return _kept(request, await plain_order_page(request.state, reference, request))


async def asset(request: Request) -> Answer:
    """A file whose name changes with its content."""
    return await built_file(request.fields, BUILT, request.path["name"], {**HEADERS, "cache-control": IMMUTABLE})


async def favicon(request: Request) -> Answer:
    return await built_file(request.fields, BUILT, assets(BUILT)["icon.svg"].name, HEADERS)


def _kept(request: Request, page: Answer, *cookies: str) -> Answer:
    """The page, with these cookies and the language that the address names, which the browser keeps."""
    named, secure = named_language(request.scope), request.state.settings.secure_cookies
    if named is not None:
        cookies += (set_cookie(LANGUAGE_COOKIE, named, max_age_s=COOKIE_S, secure=secure, readable=True),)
    if not cookies:
        return page
    fields = (PRIVATE if name == b"cache-control" and b"no-store" not in value else (name, value)
              for name, value in page.fields)  # fmt: skip
    return page._replace(fields=(*fields, *((b"set-cookie", text.encode()) for text in cookies)))


FAST_ROUTES = [
    FastRoute("GET", path, handler, in_schema=False)
    for path, handler in (
        ("/", index), ("/e/{event_id}", event), ("/o", orders), ("/o/{reference}", order), ("/static/{name}", asset),
        ("/favicon.ico", favicon),
    )
]  # fmt: skip
