"""What a suite answered to the console's pages, and the console's pages alone on it: no server, no database.

A recording holds one script's exchanges in phases: each begins with a write, and has what was read until the next one.
A page alone gets the reads of its phase; its writes must be the recorded ones, in their order: path, body, version.
`answers/` has them as files; make them anew with `pytest proof/browser/console/test_every_control.py -m "" --record`.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import Page, Request, Route

from features.console.api import SECURITY
from shared.contracts.admin.operation import models
from shared.contracts.admin.operator_calls import OPERATIONS
from shared.errors.problems import Problem
from shared.web.built_files import MEDIA_TYPES
from tests.browser.console.desk import READS_ONLY, Desk, operation_of, path_of

T = TypeVar("T")
ROOT = Path(__file__).parents[3]
DIST, FOLDER = ROOT / "features" / "console" / "pages" / "dist", Path(__file__).with_name("answers")
URL = "http://localhost"  # a secure context, as in production; nothing is sent there
DOCUMENT, ASSET = re.compile(r"/console/((events|wall)/[^/]+)?"), re.compile(r"/console/assets/([^/]+)")
TIMES = re.compile(r"[?&](from_ms|to_ms)=\d+")  # of the figures' past: each page asks for its own
# An `EventSource` that brings `window.first` as a snapshot, and then what `window.send(name, data)` is given.
FAKE_STREAM = """
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor() {
    super();
    window.stream = this;
    setTimeout(() => { if (window.first) window.send("snapshot", window.first); });
  }
  close() { if (window.stream === this) window.stream = null; }
};
window.send = (name, data) => window.stream?.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
"""


@dataclass
class Answer:
    status: int
    etag: str | None
    body: Any


@dataclass
class Write:
    """`if_match`: the version under which it was sent."""

    method: str
    path: str
    body: Any
    if_match: str | None


@dataclass
class Phase:
    """The first one begins with no write."""

    write: Write | None
    answer: Answer | None
    reads: dict[str, Answer] = field(default_factory=dict)


@dataclass
class Recording:
    """`given`: what the script knew of others, in order; `heard`: snapshots of the stream, in order."""

    event_id: str
    phases: list[Phase] = field(default_factory=lambda: [Phase(None, None)])
    given: list[Any] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)

    def answer_of(self, read: str, phase: int) -> Answer | None:
        """The answer to a read in this phase: the last one given until then, or the first one after."""
        order = [*range(phase, -1, -1), *range(phase + 1, len(self.phases))]
        return next((self.phases[n].reads[read] for n in order if read in self.phases[n].reads), None)

    def keep_read(self, read: str, answer: Answer) -> None:
        if self.answer_of(read, len(self.phases) - 1) != answer:
            self.phases[-1].reads[read] = answer

    def save(self, name: str) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n")

    @classmethod
    def load(cls, name: str) -> "Recording":
        found = json.loads((FOLDER / f"{name}.json").read_text())
        phases = [
            Phase(
                one["write"] and Write(**one["write"]), one["answer"] and Answer(**one["answer"]),
                {read: Answer(**answer) for read, answer in one["reads"].items()},
            )
            for one in found.pop("phases")
        ]  # fmt: skip
        return cls(**found, phases=phases)


def is_read(request: Request) -> bool:
    return request.method == "GET" or operation_of(request.method, path_of(request)) in READS_ONLY


def read_of(request: Request) -> str:
    """A read as recordings name it."""
    path = TIMES.sub("", path_of(request))
    return f"{request.method} {path}"


def write_of(request: Request) -> Write:
    return Write(request.method, path_of(request), request.post_data_json, request.headers.get("if-match"))


class Alone:
    """Answers the page as recorded. `instead` answers a method and path otherwise, each answer once but the last. What
    the page should not have sent stands in `faults`.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording, self.phase = recording, 0
        self.instead: dict[tuple[str, str], list[Answer | None]] = {}
        self.sent: list[Write] = []
        self.faults: list[str] = []

    def read(self, path: str) -> Any:
        """What a read of this path is answered at first."""
        found = self.recording.answer_of(f"GET {path}", 0)
        assert found, path
        return found.body

    def change(self, path: str, **fields: Any) -> None:
        """Answers a read as recorded but for these fields, which its model must know."""
        body = self.read(path) | fields
        operation = operation_of("GET", path)
        assert operation, path
        models(OPERATIONS[operation].answer or "").validate_python(body)
        self.instead["GET", path] = [Answer(200, None, body)]

    def refuse(self, method: str, path: str, problem: Problem) -> None:
        self.instead[method, path] = [Answer(problem.code, None, problem.document("a-request"))]

    async def handle(self, route: Route) -> None:
        request, path = route.request, path_of(route.request).partition("?")[0]
        if DOCUMENT.fullmatch(path):
            await route.fulfill(path=DIST / "index.html", content_type="text/html", headers=SECURITY)
        elif asset := ASSET.fullmatch(path):
            file = DIST / asset[1]
            await route.fulfill(path=file, content_type=MEDIA_TYPES[file.suffix], headers=SECURITY)
        elif path == "/favicon.ico":
            await route.fulfill(status=204)
        elif answer := self._answer(request, path):
            headers = {"content-type": "application/json"} | ({"etag": answer.etag} if answer.etag else {})
            await route.fulfill(status=answer.status, headers=headers, body=_text(answer.body))
        else:
            await route.abort()

    def _answer(self, request: Request, path: str) -> Answer | None:
        instead = self.instead.get((request.method, path))
        if not is_read(request):
            self.sent.append(write_of(request))
        if instead:
            return instead.pop(0) if len(instead) > 1 else instead[0]
        if is_read(request):
            found = self.recording.answer_of(read_of(request), self.phase)
            if found is None:
                self.faults.append(f"{read_of(request)} was not recorded")
            return found
        return self._write(request)

    def _write(self, request: Request) -> Answer | None:
        sent = write_of(request)
        if self.phase + 1 >= len(self.recording.phases):
            self.faults.append(f"{sent} was not recorded")
            return None
        self.phase += 1
        phase = self.recording.phases[self.phase]
        if sent != phase.write:
            self.faults.append(f"{sent} was sent, {phase.write} is recorded")
        operation = operation_of(sent.method, sent.path)
        if operation and OPERATIONS[operation].takes_key and "idempotency-key" not in request.headers:
            self.faults.append(f"{sent} takes an idempotency key")
        return phase.answer


class RecordedDesk(Desk):
    """An operator at the console of an event as it was recorded."""

    def __init__(self, page: Page, alone: Alone) -> None:
        super().__init__(page, alone.recording.event_id)
        self.alone = alone
        self._given, self._heard = iter(alone.recording.given), iter(alone.recording.heard[1:])

    async def given(self, prepare: Callable[[Any], Awaitable[T]]) -> T:
        found: T = next(self._given)
        return found

    async def hears(self, shown: Awaitable[None]) -> None:
        await self.send("snapshot", next(self._heard))
        await shown

    async def send(self, name: str, data: Any) -> None:
        """Brings a message of the stream."""
        await self.page.evaluate("([name, data]) => window.send(name, data)", [name, data])


def _text(body: Any) -> str:
    return "" if body is None else json.dumps(body)
