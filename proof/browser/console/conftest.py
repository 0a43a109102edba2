"""An operator's desk at a running suite, and `--record`: what the suite answers is kept for the pages alone."""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import asyncpg
import pytest
from playwright.async_api import Page, Request, Response, Route

from features.console.schemas import STREAM_PATH
from onsale.client import Fan
from onsale.local.engines import with_driver
from onsale.server_sent_events import messages
from tests.browser.console.conftest import Open, open_page  # noqa: F401 - a fixture
from tests.browser.console.desk import FLOOR, READS_ONLY, Desk, Script, reason_of, written_by
from tests.browser.console.recorded import Answer, Phase, Recording, is_read, read_of, write_of
from tests.support.running.suite import RunningSuite, fan_of

T = TypeVar("T")
ANSWERS = re.compile(r"https?://[^/]+/(admin/|events/|console/(session|api)(?!.*/stream))")


class SuiteDesk(Desk):
    """An operator at a new event of a running suite. `recording` keeps what the suite answers."""

    def __init__(self, page: Page, suite: RunningSuite, event_id: str, recording: Recording) -> None:
        super().__init__(page, event_id)
        self.suite, self.recording = suite, recording
        self.stack = AsyncExitStack()
        self.browser, self.operator = suite.browser(), suite.operator()

    async def given(self, prepare: Callable[[Any], Awaitable[T]]) -> T:
        found: T = json.loads(json.dumps(await prepare(self)))  # as the recording has it
        self.recording.given.append(found)
        return found

    async def hears(self, shown: Awaitable[None]) -> None:
        await shown
        await self.keep_snapshot()

    async def keep_snapshot(self) -> None:
        async with self.operator.stream("GET", STREAM_PATH.format(event_id=self.event_id)) as stream:
            _, first, *_ = await anext(messages(stream.aiter_lines()))
        self.recording.heard.append(json.loads(first))

    async def fan(self) -> Fan:
        return await fan_of(self.browser, self.event_id).come_in()

    async def read(self, path: str) -> Any:
        answer = await self.operator.get(path)
        assert answer.is_success, answer.text
        return answer.json()

    async def logged(self) -> list[tuple[str, str, str | None]]:
        """What was done, by whom and why, of this event and of orders and webhooks, of the last ones of each log."""
        paths = [
            f"/admin/queue/events/{self.event_id}/changes", f"/admin/inventory/events/{self.event_id}/changes",
            f"/admin/orders/events/{self.event_id}/price-changes", "/admin/orders/changes",
        ]  # fmt: skip
        entries = [entry for path in paths for entry in (await self.read(path))["changes"]]
        return sorted({(entry["action"], entry["actor"], entry["reason"]) for entry in entries}, key=str)

    async def execute(self, statement: str, *values: Any) -> None:
        """What no operator does: a fault in the database."""
        database = await asyncpg.connect(with_driver(self.suite.engines["postgres_url"]))
        try:
            assert await database.execute(statement, *values) == "UPDATE 1"
        finally:
            await database.close()

    async def record(self, route: Route) -> None:
        """Passes an exchange on, and keeps it."""
        request, answer = route.request, await route.fetch()
        text = await answer.text()
        found = Answer(answer.status, answer.headers.get("etag"), json.loads(text) if text else None)
        if is_read(request):
            self.recording.keep_read(read_of(request), found)
        else:
            self.recording.phases.append(Phase(write_of(request), found))
        await route.fulfill(response=answer)


Follow = Callable[[str, Script], Awaitable[None]]


@pytest.fixture
async def follow(suite: RunningSuite, open_page: Open, request: pytest.FixtureRequest) -> Follow:  # noqa: F811
    """Runs a script at a new event. What it says it presses must have been called, with a reason that is logged."""
    called: set[str] = set()
    reasons: dict[str, set[str]] = {}

    def note(one: Request) -> None:
        if row := written_by(one):
            called.add(row)

    def note_done(answer: Response) -> None:
        row = written_by(answer.request)
        if row and answer.ok and (reason := reason_of(answer.request)):
            reasons.setdefault(row, set()).add(reason)

    async def follow(name: str, script: Script) -> None:
        recording = Recording(await suite.open_event(**{"sections": FLOOR, **script.event()}))
        desks: list[SuiteDesk] = []

        async def prepare(page: Page) -> None:
            desks.append(SuiteDesk(page, suite, recording.event_id, recording))
            page.on("request", note)
            page.on("response", note_done)
            if request.config.getoption("--record", default=False):
                await page.route(ANSWERS, desks[0].record)

        await open_page(suite, f"events/{recording.event_id}", prepare=prepare)
        [desk] = desks
        async with desk.stack, desk.browser, desk.operator:
            await desk.keep_snapshot()
            await script.run(desk)
            assert script.presses <= called
            assert script.presses - READS_ONLY <= reasons.keys(), "each write takes a reason"
            logged = {reason for _, _, reason in await desk.logged()}
            assert set().union(*(reasons.get(row, set()) for row in script.presses)) <= logged
        if request.config.getoption("--record", default=False):
            await desk.page.unroute_all(behavior="wait")
            recording.save(name)

    return follow


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write tests/browser/console/answers anew")
