"""What goes with an event's page, for other programs: home screens, calendars, and the button on promoters' sites.

The button and its facts are for every site: public facts of the last second, read without credentials.
"""

from collections.abc import Mapping
from datetime import datetime

from fastapi import APIRouter, Request, Response

from services.gateway.documents import BUILT, HEADERS, app_icon_files
from services.gateway.event_page.button import ButtonAnswer, button
from services.gateway.event_page.facts import EventFacts, event_path
from services.gateway.event_page.manifest import manifest
from services.gateway.state import State
from shared.contracts.catalogue import EventDetails
from shared.runtime.clock import now_ms, to_datetime
from shared.web.fast_routes import QUIET_KEY
from shared.web.languages import VARY, language_of
from shared.web.pages.built_files import assets, built_file
from shared.web.pages.calendar_file import CalendarEntry, calendar_file
from shared.web.parameters import EventIdPath
from shared.words.words import words

router = APIRouter()
FOR_EVERY_SITE = {
    "access-control-allow-origin": "*",
    "cross-origin-resource-policy": "cross-origin",
    "x-content-type-options": "nosniff",
}
SCRIPT_S, FACTS_S, FILE_S = 300, 5, 60
BY_LANGUAGE = {"vary": VARY}


async def _facts(request: Request, event_id: str) -> tuple[State, EventFacts]:
    request.scope[QUIET_KEY] = True
    state: State = request.app.state.deps
    return state, await state.event_pages.reader.facts(event_id)


@router.get("/e/{event_id}/manifest.webmanifest", include_in_schema=False)
async def get_manifest(event_id: EventIdPath, request: Request) -> Response:
    _, facts = await _facts(request, event_id)
    body = manifest(facts.found, language_of(request.scope), app_icon_files())
    return _file(body, "application/manifest+json", BY_LANGUAGE)


@router.get("/e/{event_id}/calendar.ics", include_in_schema=False)
async def get_calendar(event_id: EventIdPath, request: Request) -> Response:
    state, facts = await _facts(request, event_id)
    body = calendar_file(calendar_entry(facts.found, state.settings.public_url, to_datetime(now_ms())))
    name = {"content-disposition": f'attachment; filename="{event_id}.ics"'}
    return _file(body, "text/calendar; charset=utf-8", name)


@router.get("/e/{event_id}/button.json", tags=["line"], summary="See what a button on another site shows")
async def get_button(event_id: EventIdPath, request: Request, response: Response) -> ButtonAnswer:
    """For every site, without credentials. `lang` chooses the language."""
    _, facts = await _facts(request, event_id)
    answer = button(facts, words(language_of(request.scope)))
    response.headers.update({**FOR_EVERY_SITE, **BY_LANGUAGE, "cache-control": f"public, max-age={FACTS_S}"})
    return answer


@router.get("/embed.js", include_in_schema=False)
@router.get("/onsale.js", include_in_schema=False)
@router.get("/onsale.d.ts", include_in_schema=False)
async def get_script(request: Request) -> Response:
    """The script of the button, and the client for other programs. Addresses stay, so they are asked for again after
    minutes.
    """
    request.scope[QUIET_KEY] = True
    name = assets(BUILT)[request.url.path.removeprefix("/")].name  # which changes with its content
    headers = {**HEADERS, **FOR_EVERY_SITE, "cache-control": f"public, max-age={SCRIPT_S}", "etag": f'"{name}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return await built_file(request, BUILT, name, headers)


def _file(body: bytes, media_type: str, headers: Mapping[str, str]) -> Response:
    sent = {**HEADERS, "cache-control": f"public, max-age={FILE_S}", **headers}
    return Response(body, headers=sent, media_type=media_type)


def calendar_entry(event: EventDetails, public_url: str, now: datetime) -> CalendarEntry:
    """Its id is that of the event at this address."""
    return CalendarEntry(
        uid=f"{event.event_id}@{public_url.partition('://')[2]}", made_at=now, starts_at=event.starts_at,
        ends_at=event.ends_at, zone=event.timezone, name=event.name, venue=event.venue,
        url=public_url + event_path(event.event_id),
    )  # fmt: skip
