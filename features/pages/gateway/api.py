"""The fans' pages: four HTML documents and their assets, loaded from this origin only; what goes with an event's page
for other programs, home screens, calendars and the button on promoters' sites; and the forms of the line.

The language that an address names (`?lang=`) is kept in a cookie, so that the browser's next pages have it. Scripts may
read it: a balancer's page of an outage chooses by it. The button and its facts are for every site: public facts of the
last second, read without credentials.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cache, partial
from inspect import getdoc
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from fastapi import Request as FrameworkRequest
from pydantic import Field

from features.pages.contracts import ShopClient
from features.pages.forms import Form, Forms, SentForm
from features.pages.gateway import problem_pages
from features.pages.gateway.documents import (
    BUILT,
    HEADERS,
    PAGES,
    CataloguePages,
    EventPages,
    app_icon_files,
    document,
    rendered,
)
from features.pages.gateway.event_page import ButtonAnswer, EventFacts, button, event_path, manifest
from features.pages.gateway.own import OwnEventParts
from features.pages.gateway.plain_pages import (
    FanPages,
    PlainPageLimit,
    has_no_scripts,
    plain_event_page,
    plain_order_page,
    waiting_page,
)
from features.pages.gateway.stock import SeatTables
from services.gateway.api.queue import waiting_status
from services.gateway.api.schemas import StatusAnswer
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS
from shared.concurrency.background import Loops
from shared.contracts.catalogue import EventDetails
from shared.contracts.fields import EVENT_ID_PATTERN
from shared.errors.problems import NoAnswer, NotFound, Overloaded, Unavailable, UnknownEvent, UpstreamFailed
from shared.process.settings import PublicAddress
from shared.routes import EVENT_ID, REFERENCE
from shared.rpc import ServiceClient
from shared.runtime.clock import now_ms, to_datetime
from shared.security.tokens import QueueToken, set_cookie
from shared.web.answers import JSON, Answer, Document, compressed, fields_of
from shared.web.built_files import IMMUTABLE, assets, built_file
from shared.web.calendar_file import CalendarEntry, calendar_file
from shared.web.fast_routes import FastRoute
from shared.web.parts import Part
from shared.web.request import LANGUAGE_COOKIE, VARY, EventIdPath, Request, language_of, named_language
from shared.words.words import words

_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)
COOKIE_S = 365 * 86_400
PRIVATE = (b"cache-control", b"private, no-cache")
FOR_EVERY_SITE = {
    "access-control-allow-origin": "*",
    "cross-origin-resource-policy": "cross-origin",
    "x-content-type-options": "nosniff",
}
SCRIPT_S, FACTS_S, FILE_S = 300, 5, 60
BY_LANGUAGE = {"vary": VARY}


class PageSettings(PublicAddress):
    """Settings of the gateway that pages need."""

    plain_pages_per_s: float = Field(
        50,
        gt=0,
        le=10_000,
        description="Personal pages per second for fans without scripts, a fifth of them for one client address; "
        "beyond them a small page asks again by itself.",
    )


@asynccontextmanager
async def open_pages(state: State, _loops: Loops) -> AsyncIterator[FanPages]:
    """Reads under way are cancelled at the end."""
    settings = state.settings
    assert isinstance(settings, PageSettings)
    shop = ShopClient(*(
        ServiceClient(state.connections, url, settings.service_keys, name=name)
        for name, url in (("inventory", settings.inventory_url), ("orders", settings.orders_url))
    ))  # fmt: skip
    limit = PlainPageLimit(
        per_s=settings.plain_pages_per_s, addresses_max=DEFAULTS.rate_limit_keys_max, shared_by=settings.processes
    )
    pages = FanPages(
        gateway=state, shop=shop, events=EventPages(state.line_cache, shop, settings.public_url),
        catalogue=CataloguePages(state.line_cache, shop), own=OwnEventParts(shop, SeatTables(shop)), limit=limit,
        public_url=settings.public_url,
    )  # fmt: skip
    yield pages
    for close in (pages.events.close, pages.catalogue.close, pages.own.seat_tables.close):
        await close()


# -- pages -------------------------------------------------------------------------------------------------------------


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
    known = after if _event_id.fullmatch(after) else None
    page = await request.part(FanPages).catalogue.page(language_of(request.scope), known)
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
    return _kept(request, await _event_page(request, event_id), *([secret] if secret is not None else ()))


def orders(request: Request) -> Answer:
    """The orders of this browser."""
    return _page(request, "orders.html")


async def _event_page(request: Request, event_id: str) -> Answer:
    pages = request.part(FanPages)
    if has_no_scripts(request):
        return await plain_event_page(pages, event_id, request)
    may_have_place = pages.gateway.token_reader.may_have_place(request.scope, event_id)
    if may_have_place and (own := await waiting_page(pages, event_id, request)) is not None:
        return own
    page = await pages.events.page(event_id, language_of(request.scope), may_have_place=may_have_place)
    return page.answer(request.fields)


async def order(request: Request) -> Answer:
    reference = request.path["reference"]
    if not _reference.fullmatch(reference):
        raise NotFound("No order has this address. Use the whole link from your e-mail.")
    if not has_no_scripts(request):
        return _page(request, "order.html")
    return _kept(request, await plain_order_page(request.part(FanPages), reference, request))


async def asset(request: Request) -> Answer:
    """A file whose name changes with its content."""
    return await built_file(request.fields, BUILT, request.path["name"], {**HEADERS, "cache-control": IMMUTABLE})


async def favicon(request: Request) -> Answer:
    return await built_file(request.fields, BUILT, assets(BUILT)["icon.svg"].name, HEADERS)


@cache
def _api_document(name: str) -> Document:
    """Raises `NotFound`."""
    path = PAGES / "openapi" / name
    if not path.is_file():
        raise NotFound
    return Document(path.read_bytes(), "application/json", HEADERS)


def api_document(request: Request) -> Answer:
    """The OpenAPI document for fans or for operators."""
    return _api_document(request.path["name"]).answer(request.fields)


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


# -- what goes with an event's page ------------------------------------------------------------------------------------


async def _facts(request: Request) -> EventFacts:
    return await request.part(FanPages).events.reader.facts(request.path["event_id"])


async def get_manifest(request: Request) -> Answer:
    body = manifest((await _facts(request)).found, language_of(request.scope), app_icon_files())
    return _file(request, body, {"content-type": "application/manifest+json", **BY_LANGUAGE})


async def get_calendar(request: Request) -> Answer:
    event, public_url = (await _facts(request)).found, request.part(FanPages).public_url
    body = calendar_file(calendar_entry(event, public_url, to_datetime(now_ms())))
    name = f'attachment; filename="{event.event_id}.ics"'
    return _file(request, body, {"content-type": "text/calendar; charset=utf-8", "content-disposition": name})


async def get_button(request: Request) -> Answer:
    """For every site, without credentials. `lang` chooses the language."""
    shown = button(await _facts(request), words(language_of(request.scope)))
    kept = {**FOR_EVERY_SITE, **BY_LANGUAGE, "cache-control": f"public, max-age={FACTS_S}"}
    return compressed(request.fields, Answer(200, shown.model_dump_json().encode(), (JSON, *fields_of(kept))))


async def get_script(request: Request) -> Answer:
    """The script of the button, and the client for other programs. Addresses stay, so they are asked for again after
    minutes.
    """
    name = assets(BUILT)[request.scope["path"].removeprefix("/")].name  # which changes with its content
    headers = {**HEADERS, **FOR_EVERY_SITE, "cache-control": f"public, max-age={SCRIPT_S}", "etag": f'"{name}"'}
    if headers["etag"] in (request.header(b"if-none-match") or ""):
        return Answer(304, b"", fields_of(headers))
    return await built_file(request.fields, BUILT, name, headers)


def _file(request: Request, body: bytes, headers: Mapping[str, str]) -> Answer:
    sent = {**HEADERS, "cache-control": f"public, max-age={FILE_S}", **headers}
    return compressed(request.fields, Answer(200, body, fields_of(sent)))


def calendar_entry(event: EventDetails, public_url: str, now: datetime) -> CalendarEntry:
    """Its id is that of the event at this address."""
    return CalendarEntry(
        uid=f"{event.event_id}@{public_url.partition('://')[2]}", made_at=now, starts_at=event.starts_at,
        ends_at=event.ends_at, zone=event.timezone, name=event.name, venue=event.venue,
        url=public_url + event_path(event.event_id),
    )  # fmt: skip


# -- what a fan at a position of the line is told: for operators, and for fans who have not joined yet -----------------

router = APIRouter(tags=["line"])
POSITION_MAX, LANES_MAX = 1_000_000_000, 100


@router.get(
    "/events/{event_id}/queue/preview", summary="See what a fan at a position is told",
    response_model_exclude_unset=True,
)  # fmt: skip
async def preview(
    event_id: EventIdPath, request: FrameworkRequest, response: Response,
    position: Annotated[int, Query(ge=1, le=POSITION_MAX, description="Places between the fan and the head.")],
    lane: Annotated[int, Query(ge=0, le=LANES_MAX)] = 0,
) -> StatusAnswer:  # fmt: skip
    """The status of a place there, as its fan gets it who joined now: the position, the wait as a range and its reason.
    Nobody needs to be there, and it is no heartbeat.
    """
    state: State = request.app.state.deps
    response.headers["cache-control"] = "public, max-age=1"
    line = await state.line_cache.line(event_id)
    place = line.heads.get(lane, 0) + position
    token = QueueToken(event_id, line.epoch, lane, place, holder="", issued_at_s=now_ms() // 1000)
    body = waiting_status(line, token, position)
    if body.get("rank") is not None:
        body |= {"rank": place, "position_in_queue": position}  # after a draw the head counts ranks
    return StatusAnswer.model_validate(body)


# -- the forms of the line: join, leave, come in and more time to choose -----------------------------------------------
# A join has one key for each browser and event, so that a double press, a second tab or a reload finds the same place;
# the browser's secret cookie makes it this browser's own.

LINE = rf"/events/(?P<event_id>{EVENT_ID})/queue"
JOIN_KEY = "join-form-of-this-browser"


def next_page(sent: SentForm) -> str:
    """The event's page, with the wait that a join was answered with. A code never gets into an address."""
    entry = sent.answer.get("entry")
    return event_path(sent.path["event_id"]) + (f"?{urlencode({'entry': entry})}" if entry else "")


FORMS = Forms(
    Form(
        LINE, lambda fields: fields.given(code=fields.one("code")), next_page,
        method="DELETE", key=lambda fields: JOIN_KEY,
    ),
    Form(f"{LINE}/pass(/extend)?", lambda fields: {}, next_page),
)  # fmt: skip

_route = partial(FastRoute, "GET", in_schema=False)
FAST_ROUTES = [
    *(_route(path, handler) for path, handler in (
        ("/", index), ("/e/{event_id}", event), ("/o", orders), ("/o/{reference}", order), ("/static/{name}", asset),
        ("/favicon.ico", favicon), ("/openapi/{name}", api_document),
    )),
    *(_route(path, get_script) for path in ("/embed.js", "/onsale.js", "/onsale.d.ts")),
    *(_route(f"/e/{{event_id}}/{name}", handler, patterns={"event_id": EVENT_ID_PATTERN}) for name, handler in (
        ("manifest.webmanifest", get_manifest), ("calendar.ics", get_calendar),
    )),
    FastRoute(
        "GET", "/e/{event_id}/button.json", get_button, tag="line", patterns={"event_id": EVENT_ID_PATTERN},
        summary="See what a button on another site shows", description=getdoc(get_button),
        answers={200: ("What the button shows", ButtonAnswer)},
    ),
]  # fmt: skip
PART = Part(
    routers=[router, problem_pages.router], fast_routes=FAST_ROUTES, forms=FORMS, settings=PageSettings, open=open_pages
)
