"""An operator at the console of one event, and which endpoints of the admin APIs the pages of a test call."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from playwright.async_api import Locator, Page, Request, expect

from onsale.client import Fan
from onsale.local.engines import with_driver
from shared.contracts.admin import inventory, order_reports, orders, prices, queue
from shared.contracts.admin.endpoint import Endpoint
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite

Test = TypeVar("Test", bound=Callable[..., Any])
Row = tuple[str, str]
PRESSED: set[Row] = set()
READS_ONLY = {(queue.PLAN_CAPACITY.method, queue.PLAN_CAPACITY.path)}
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000, "fee_minor": 0}]
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "code_required": True}]
LATE_MS = 20_000


def writes() -> set[Row]:
    """Every endpoint of the admin APIs that changes something."""
    tables = (queue, inventory, orders, prices, order_reports)
    rows = [each for table in tables for each in vars(table).values() if isinstance(each, Endpoint)]
    return {(row.method, row.path) for row in rows if row.method != "GET"}


def presses(*endpoints: Endpoint[Any]) -> Callable[[Test], Test]:
    """Marks a test that presses the controls of these endpoints."""

    def mark(test: Test) -> Test:
        rows = {(endpoint.method, endpoint.path) for endpoint in endpoints}
        PRESSED.update(rows)
        return pytest.mark.presses.with_args(rows)(test)

    return mark


def row_of(request: Request) -> Row | None:
    """The endpoint that a request calls, the one with the fewest parameters if several match."""
    path = re.sub(r"^https?://[^/]+|[?].*$", "", request.url)
    found = [
        row for row in writes()
        if row[0] == request.method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", row[1]), path)
    ]  # fmt: skip
    return min(found, key=lambda row: row[1].count("{"), default=None)


def reason_of(request: Request) -> str | None:
    """The reason that a request gives, in its body or its query."""
    query = parse_qs(urlsplit(request.url).query).get("reason", [None])
    body = request.post_data_json or {}
    return body.get("reason") or query[0]


class Desk:
    """An operator at the console of one event."""

    def __init__(self, page: Page, suite: RunningSuite, event_id: str) -> None:
        self.page, self.suite, self.event_id = page, suite, event_id

    async def open(self, *buttons: str) -> None:
        controls = self.page.get_by_role("navigation", name="Controls")
        for button in buttons:
            await controls.get_by_role("button", name=button).click()

    async def close(self) -> None:
        await self.page.keyboard.press("Escape")
        await expect(self.page.locator("dialog.drawer")).to_be_hidden()

    def action(self, name: str) -> Locator:
        return self.page.locator(f"dialog [data-action='{name}']")

    async def press(
        self, name: str, label: str, /, *, asks: bool = True, verb: str = "", reason: str = "for a test", **fields: Any
    ) -> str:
        """Opens the form of a control, fills it in, presses it twice at once, and returns what the console says."""
        form = self.action(name)
        if asks:
            await form.get_by_role("button", name=f"{label}…", exact=True).click()
        for field, value in fields.items():
            found = form.locator(f"[name={field}]")
            if isinstance(value, bool):
                await found.set_checked(value)
            elif await found.evaluate("each => each.tagName") == "SELECT":
                await found.select_option(value)
            else:
                await found.fill(str(value))
        await form.locator("[name=reason]").fill(reason)
        sent: list[str] = []
        self.page.on("request", lambda one: sent.append(one.url) if row_of(one) else None)
        await form.get_by_role("button", name=verb or label, exact=True).dblclick()
        done = form.locator("[data-done], [data-problem], [data-conflict]")
        await expect(done).to_be_visible(timeout=LATE_MS)
        await self.page.wait_for_timeout(50)
        assert len(sent) == 1, f"a double click of {label} sent {sent}"
        return await done.inner_text()

    async def undo(self, name: str, label: str) -> None:
        await self.action(name).get_by_role("button", name=label, exact=True).click()
        await expect(self.action(name).locator("[data-done]")).to_have_text("Taken back.")

    async def get(self, path: str) -> Any:
        async with self.suite.operator() as operator:
            answer = await operator.get(path)
            assert answer.is_success, answer.text
            return answer.json()

    async def room(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/events/{self.event_id}/room"))

    async def stock(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/inventory/events/{self.event_id}/stock"))

    async def log(self) -> set[tuple[str, str, str | None]]:
        """What was done, by whom and why, of this event and of orders and webhooks."""
        paths = [
            f"/admin/queue/events/{self.event_id}/changes", f"/admin/inventory/events/{self.event_id}/changes",
            f"/admin/orders/events/{self.event_id}/price-changes", "/admin/orders/changes",
        ]  # fmt: skip
        entries = [entry for path in paths for entry in (await self.get(path))["changes"]]
        return {(entry["action"], entry["actor"], entry["reason"]) for entry in entries}

    async def fan(self, browser: Any) -> Fan:
        return await fan_of(browser, self.event_id).come_in()

    async def execute(self, statement: str, *values: Any) -> None:
        """What no operator does: a fault in the database."""
        database = await asyncpg.connect(with_driver(self.suite.engines["postgres_url"]))
        try:
            assert await database.execute(statement, *values) == "UPDATE 1"
        finally:
            await database.close()


Sit = Callable[..., Awaitable[Desk]]
