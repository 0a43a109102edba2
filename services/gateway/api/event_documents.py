"""What goes with an event's page, for other programs: home screens, calendars, and the button on promoters' sites.

The button and its facts are for every site: public facts of the last second, read without credentials.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from inspect import getdoc

from services.gateway.documents import BUILT, HEADERS, app_icon_files
from services.gateway.event_page import ButtonAnswer, EventFacts, button, event_path, manifest
from services.gateway.state import State
from shared.contracts.catalogue import EventDetails
from shared.contracts.fields import EVENT_ID_PATTERN
from shared.runtime.clock import now_ms, to_datetime
from shared.web.answers import JSON, Answer, compressed, fields_of
from shared.web.fast_routes import FastRoute
from shared.web.pages.built_files import assets, built_file
from shared.web.pages.calendar_file import CalendarEntry, calendar_file
from shared.web.request import VARY, Request, language_of
from shared.words.words import words

FOR_EVERY_SITE = {
    "access-control-allow-origin": "*",
    "cross-origin-resource-policy": "cross-origin",
    "x-content-type-options": "nosniff",
}
SCRIPT_S, FACTS_S, FILE_S = 300, 5, 60
BY_LANGUAGE = {"vary": VARY}


async def _facts(request: Request) -> tuple[State, EventFacts]:
    state: State = request.state
    return state, await state.event_pages.reader.facts(request.path["event_id"])


async def get_manifest(request: Request) -> Answer:
    _, facts = await _facts(request)
    body = manifest(facts.found, language_of(request.scope), app_icon_files())
    return _file(request, body, {"content-type": "application/manifest+json", **BY_LANGUAGE})


async def get_calendar(request: Request) -> Answer:
    state, facts = await _facts(request)
    body = calendar_file(calendar_entry(facts.found, state.settings.public_url, to_datetime(now_ms())))
    name = f'attachment; filename="{request.path["event_id"]}.ics"'
    return _file(request, body, {"content-type": "text/calendar; charset=utf-8", "content-disposition": name})


async def get_button(request: Request) -> Answer:
    """For every site, without credentials. `lang` chooses the language."""
    _, facts = await _facts(request)
    shown = button(facts, words(language_of(request.scope)))
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


_route = partial(FastRoute, "GET", patterns={"event_id": EVENT_ID_PATTERN})
FAST_ROUTES = [
    _route("/e/{event_id}/manifest.webmanifest", get_manifest, in_schema=False),
    _route("/e/{event_id}/calendar.ics", get_calendar, in_schema=False),
    _route(
        "/e/{event_id}/button.json", get_button, tag="line", summary="See what a button on another site shows",
        description=getdoc(get_button), answers={200: ("What the button shows", ButtonAnswer)},
    ),
    *(_route(path, get_script, in_schema=False) for path in ("/embed.js", "/onsale.js", "/onsale.d.ts")),
]  # fmt: skip
