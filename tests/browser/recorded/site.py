"""The fans' site without a suite, on loopback in the test's own event loop: documents and files by the gateway's own
code, the API by answers that a real suite gave (`recorded.json`) and by those that a test makes up.

Every answer must fit the API's documents, and a request without an answer fails the test.
"""

import asyncio
import base64
import inspect
import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from features.hall import seat_codes
from features.pages.contracts import EventPageFacts, ListedEvents, TypePrice
from features.pages.gateway.api import PageSettings
from features.pages.gateway.documents import CataloguePages, EventPages
from features.pages.gateway.plain_pages import FanPages
from services.gateway.app import create_app
from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.catalogue import EventDetails, SectionList
from shared.contracts.prices import PricesAnswer
from shared.errors.problems import Unavailable, UnknownEvent
from shared.runtime.clock import now_ms, rfc3339
from shared.security.tokens import Users
from shared.web.app import public
from tests.browser.recorded import api_documents
from tests.gateway.frames import line_frame, snapshot
from tests.support.running.serving import serving

Json = dict[str, Any]
RECORDED = Path(__file__).with_name("recorded.json")
API = re.compile(r"/(events|orders|payments|reminders)(/|$)")
FACTS = re.compile(r"(?<=id=.facts.>).*?(?=</script>)")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
LINE = re.compile(r"line=(\d+)x(\d+)(?::(\w+))?")
BYTES, ALL_SEATS = "base64", "seats=*"
NO_ANSWER, STREAM, DONE = "no answer", "a stream", "done, with nothing to say"
NO_PLACE = api_documents.problem("no-credential")
UNLESS_TOLD = {"/queue": NO_PLACE, "/updates": STREAM}


class Asked(NamedTuple):
    """A request of a page."""

    method: str
    path: str
    query: str
    body: Any

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def recorded() -> Json:
    """What a suite answered, as if it were now: times near the recording are moved to the present."""
    told = json.loads(RECORDED.read_text())
    taken = datetime.fromisoformat(told["recorded_at"])
    later = datetime.fromtimestamp(now_ms() / 1000, taken.tzinfo) - taken

    def moved(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0])
        return found[0] if abs(at - taken) > timedelta(days=1) else rfc3339(int((at + later).timestamp() * 1000))

    answers: Json = json.loads(MOMENT.sub(moved, json.dumps(told["answers"])))
    return answers


def is_problem(answer: Any) -> bool:
    return isinstance(answer, dict) and str(answer.get("type", "")).startswith("/problems/")


class Silence(Response):
    """Takes the request and never answers."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


class RecordedSite:
    """The site for one test. `answers` maps `METHOD path` to a body, a problem, bytes, `DONE`, `NO_ANSWER` or `STREAM`,
    or to a function of the request that answers one of these.
    """

    def __init__(self, url: str) -> None:
        self.url, self.answers = url, recorded()
        self.asked: list[Asked] = []
        self.faults: list[str] = []
        self._streams: list[asyncio.Queue[str]] = []
        settings, lines, shop = Settings(), Lines(self.answers), Shop(self.answers)
        gateway = create_app(settings)
        gateway.state.deps = SimpleNamespace(
            settings=settings, line_cache=lines, token_reader=TokenReader(settings, Users())
        )
        gateway.state.parts[FanPages] = SimpleNamespace(
            gateway=gateway.state.deps, public_url=PageSettings().public_url,
            events=EventPages(lines, shop, PageSettings().public_url),  # type: ignore[arg-type]
            catalogue=CataloguePages(lines, shop),  # type: ignore[arg-type]
        )  # fmt: skip
        self._gateway, self.brings_answers = public(gateway), False

    def change(self, request: str, **fields: Any) -> Json:
        """Changes fields of the answer that is there."""
        answer: Json = {**self.answers[request], **fields}
        self.answers[request] = answer
        return answer

    def bodies(self, request: str) -> list[Any]:
        """What pages sent with this request, in order."""
        return [asked.body for asked in self.asked if asked.name == request]

    def send(self, kind: str, data: Json) -> None:
        """To every stream that is open."""
        for stream in self._streams:
            stream.put_nowait(_frame(kind, data))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if API.match(request.url.path):
            await (await self._answered(request))(scope, receive, send)
        elif request.url.path.startswith("/e/") and not self.brings_answers:
            await (await self._bare(request))(scope, receive, send)
        else:
            await self._gateway(scope, receive, send)

    async def _bare(self, request: Request) -> Response:
        """An event's document without the answers that it brings: the page asks for those of the test."""
        transport = httpx.ASGITransport(self._gateway)
        async with httpx.AsyncClient(transport=transport, base_url=self.url) as client:
            answer = await client.get(str(request.url), headers=request.headers.raw)
        made = Response(FACTS.sub("{}", answer.text), answer.status_code)
        made.raw_headers += [
            pair for pair in answer.headers.raw if pair[0] not in (b"content-length", b"content-encoding")
        ]
        return made

    async def _answered(self, request: Request) -> Response:
        sent = await request.body()
        asked = Asked(request.method, request.url.path, request.url.query, json.loads(sent or b"null"))
        self.asked.append(asked)
        default = next((told for part, told in UNLESS_TOLD.items() if part in asked.path), None)
        answer = self.answers.get(asked.name, default)
        if callable(answer):
            answer = answer(asked)
            answer = await answer if inspect.isawaitable(answer) else answer
        if answer == NO_ANSWER:
            return Silence()
        if answer == STREAM:
            return StreamingResponse(self._frames(asked), media_type="text/event-stream")
        try:
            return self._response(asked, answer)
        except (AssertionError, KeyError, TypeError) as fault:
            self.faults.append(f"{asked.name}: {fault!r}")
            return Response(status_code=404)

    def _response(self, asked: Asked, answer: Any) -> Response:
        assert answer is not None, "nothing answers this"
        if is_problem(answer):
            api_documents.check_problem(answer)
            return _json(answer, answer["status"], "application/problem+json")
        status = api_documents.status_of(asked.method, asked.path)
        if isinstance(answer, bytes) or answer == DONE or BYTES in answer:
            content = answer if isinstance(answer, bytes) else base64.b64decode("" if answer == DONE else answer[BYTES])
            kind = "image/svg+xml" if content[:1] == b"<" else "application/octet-stream"
            return Response(content, status, media_type=kind)
        answer = _together(answer, asked)
        api_documents.check(asked.method, asked.path, answer)
        return _json(answer, status)

    async def _frames(self, asked: Asked) -> AsyncIterator[str]:
        """Begins with a frame, as a page takes a stream without one for held back, and with the seats it asks for."""
        stream: asyncio.Queue[str] = asyncio.Queue()
        self._streams.append(stream)
        try:
            yield _frame("beat", {})
            if ALL_SEATS in asked.query:
                state = self.answers[f"GET {asked.path.removesuffix('/sections/updates')}/map/state"][BYTES]
                _, version, codes = seat_codes.decode_state(base64.b64decode(state))
                yield _frame("seats", {"v": version, "s": base64.b64encode(seat_codes.pack(codes)).decode()})
            while True:
                yield await stream.get()
        finally:
            self._streams.remove(stream)


def _frame(kind: str, data: Json) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _json(answer: Json, status: int, media_type: str = "application/json") -> Response:
    return Response(json.dumps(answer), status, media_type=media_type)


def _together(answer: Json, asked: Asked) -> Json:
    """Orders also tells the price of all lines that a page asks about."""
    lines = LINE.findall(asked.query)
    if not lines or "all_in" not in answer:
        return answer
    parts = [
        (answer["all_in_by_type"][of_type] if of_type else answer["all_in"], minor, n) for minor, n, of_type in lines
    ]
    return {**answer, "together_minor": sum(all_in[minor] * int(n) for all_in, minor, n in parts)}


def _known(answers: Json, request: str) -> Json:
    answer = answers.get(request)
    if answer is None or answer == NO_ANSWER or is_problem(answer):
        raise UnknownEvent if is_problem(answer) and answer and answer["status"] == 404 else Unavailable
    known: Json = answer
    return known


class Lines:
    """The lines of the answers, as the gateway's documents ask for them."""

    def __init__(self, answers: Json) -> None:
        self._answers = answers

    def cached(self, event_id: str) -> None:
        return None

    async def line(self, event_id: str) -> LineSnapshot:
        return snapshot(line_frame(now_ms(), state=_known(self._answers, f"GET /events/{event_id}/queue")["state"]))


class Shop:
    """Inventory and orders of the answers, as the gateway's documents ask for them."""

    def __init__(self, answers: Json) -> None:
        self._answers = answers

    async def event_page(self, event_id: str) -> EventPageFacts:
        path = f"GET /events/{event_id}"
        event = EventDetails.model_validate(_known(self._answers, path))
        availability = SectionList.model_validate(_known(self._answers, f"{path}/sections"))
        return EventPageFacts(event=event, availability=availability)

    async def list_events(self, after: str | None) -> ListedEvents:
        return ListedEvents.model_validate({"events": self._answers["GET /events"]["events"], "more": False})

    async def prices(self, event_id: str, each: list[int], of_types: Sequence[TypePrice] = ()) -> PricesAnswer:
        return PricesAnswer.model_validate(_known(self._answers, f"GET /orders/events/{event_id}/prices"))


class SiteServer:
    """One server for all tests of a worker; `site` is that of the current test."""

    url: str
    site: RecordedSite

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.site(scope, receive, send)

    def fresh(self) -> RecordedSite:
        self.site = RecordedSite(self.url)
        return self.site


@pytest.fixture(scope="session")
async def site_server() -> AsyncIterator[SiteServer]:
    server = SiteServer()
    async with serving(server) as port:
        server.url = f"http://localhost:{port}"
        yield server


@pytest.fixture
async def site(site_server: SiteServer) -> AsyncIterator[RecordedSite]:
    site = site_server.fresh()
    yield site
    assert site.faults == []
