"""An operator at the console of one event, and the scripts of what an operator does there.

A script is written once and runs twice: at a running suite (`proof/browser/console`, which records what it answers) and
on what was recorded (`test_every_control.py`).
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Locator, Page, Request, expect

from shared.contracts.admin.operator_calls import OPERATIONS

T = TypeVar("T")
READS_ONLY = {"plan_capacity"}
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000, "fee_minor": 0}]
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Club", "code_required": True}]
FOCUSED = ":is(input, textarea, select, button):focus"
LATE_MS = 20_000


def writes() -> set[str]:
    """Every operation of the admin APIs that changes something."""
    return {name for name, one in OPERATIONS.items() if one.method != "GET" and one.path.startswith("/admin/")}


def operation_of(method: str, path: str) -> str | None:
    """The operation that a request calls, the one with the fewest parameters if several match."""
    path = path.partition("?")[0]
    found = {
        name: one.path.count("{")
        for name, one in OPERATIONS.items()
        if one.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", one.path), path)
    }
    return min(found, key=found.__getitem__, default=None)


def path_of(request: Request) -> str:
    """The path and the query of a request."""
    address = urlsplit(request.url)
    return f"{address.path}?{address.query}" if address.query else address.path


def written_by(request: Request) -> str | None:
    """The operation by which a request writes."""
    return None if request.method == "GET" else operation_of(request.method, path_of(request))


def reason_of(request: Request) -> str | None:
    """The reason that a request gives, in its body or its query."""
    query = parse_qs(urlsplit(request.url).query).get("reason", [None])
    body = request.post_data_json or {}
    return body.get("reason") or query[0]


class Desk:
    """An operator at the console of one event. What answers the page is a suite, or what one answered before."""

    def __init__(self, page: Page, event_id: str) -> None:
        self.page, self.event_id = page, event_id

    async def given(self, prepare: Callable[[Any], Awaitable[T]]) -> T:
        """What somebody else does meanwhile, such as a fan who buys, and what the operator then knows of it. `prepare`
        is given the desk at a suite.
        """
        raise NotImplementedError

    async def hears(self, shown: Awaitable[None]) -> None:
        """Expects what the page learns from its stream."""
        raise NotImplementedError

    async def open(self, *buttons: str) -> None:
        controls = self.page.get_by_role("navigation", name="Controls")
        for button in buttons:
            await controls.get_by_role("button", name=button).click()

    async def close(self) -> None:
        await self.page.keyboard.press("Escape")
        await expect(self.page.locator("dialog.drawer")).to_be_hidden()
        await expect(self.page.locator("dialog.drawer[data-drawer]")).to_have_count(0)  # keys work again

    def action(self, name: str) -> Locator:
        return self.page.locator(f"dialog [data-action='{name}']")

    async def press(
        self, name: str, label: str, /, *, asks: bool = True, verb: str = "", reason: str = "for a test", **fields: Any
    ) -> str:
        """Opens the form of a control, fills it in, presses it twice at once, and returns what the console says."""
        form = self.action(name)
        if asks:
            await form.get_by_role("button", name=f"{label}…", exact=True).click()
            await expect(form.locator(FOCUSED)).to_have_count(1)  # or what is typed now goes to what gets the focus
        for field, value in fields.items():
            found = form.locator(f"[name={field}]")
            if isinstance(value, bool):
                await found.set_checked(value)
            elif await found.evaluate("each => each.tagName") == "SELECT":
                await found.select_option(value)
            else:
                await found.fill(str(value))
        await form.locator("[name=reason]").fill(reason)
        button = form.get_by_role("button", name=verb or label, exact=True)
        sent: list[str] = []
        self.page.on("request", lambda one: sent.append(one.url) if written_by(one) else None)
        await button.dblclick()
        done = form.locator("[data-done], [data-problem], [data-conflict]")
        await expect(done).to_be_visible(timeout=LATE_MS)
        await self.page.wait_for_timeout(50)
        assert len(sent) == 1, f"a double click of {label} sent {sent}"
        return await done.inner_text()

    async def undo(self, name: str, label: str) -> None:
        await self.action(name).get_by_role("button", name=label, exact=True).click()
        await expect(self.action(name).locator("[data-done]")).to_have_text("Taken back.")

    async def get(self, path: str) -> Any:
        """What the API says, as an operator's program reads it."""
        return await self.given(lambda desk: desk.read(path))

    async def room(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/events/{self.event_id}/room"))

    async def stock(self) -> dict[str, Any]:
        return dict(await self.get(f"/admin/inventory/events/{self.event_id}/stock"))

    async def log(self) -> set[tuple[str, str, str | None]]:
        """What was done, by whom and why, of this event, its orders and webhooks."""
        found = await self.given(lambda desk: desk.logged())
        return {(action, actor, reason) for action, actor, reason in found}


@dataclass(frozen=True)
class Script:
    """`presses`: the operations whose controls it presses. `event` makes the fields of the event it runs at."""

    run: Callable[[Desk], Awaitable[None]]
    presses: frozenset[str]
    event: Callable[[], dict[str, Any]]


SCRIPTS: dict[str, Script] = {}


def script(
    *presses: str, event: Callable[[], dict[str, Any]] = dict
) -> Callable[[Callable[[Desk], Awaitable[None]]], Callable[[Desk], Awaitable[None]]]:
    """Keeps a script under its name."""

    def keep(run: Callable[[Desk], Awaitable[None]]) -> Callable[[Desk], Awaitable[None]]:
        SCRIPTS[run.__name__] = Script(run, frozenset(presses), event)
        return run

    return keep
