"""Two operators at two screens: one asks for what cannot be taken back, the other approves, and it happens."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.console.conftest import DESKTOP, PHONE, Open, violations
from tests.support.running.suite import RunningSuite, problem, running_suite
from tests.support.wait import wait_until

pytestmark = pytest.mark.browser
KEYS = {name: f"the-key-of-{name}-for-this-test" for name in ("operator", "ana", "ben", "vic")}
ROLES = {"operator": "admin", "ana": "operator", "ben": "operator", "vic": "viewer"}
LATE_MS = 20_000


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningSuite]:
    """A suite where closing a room and refunding an event take two operators."""
    keys = ",".join(f"{name}:{ROLES[name]}:{key}" for name, key in KEYS.items())
    environ = {"ONSALE_ADMIN_KEYS": keys, "ONSALE_ADMIN_KEY": KEYS["operator"]}
    with running_suite(**environ, ONSALE_TWO_PERSONS="close_room,refund_event") as strict:
        (strict.data_dir / "admin.key").write_text(KEYS["operator"])
        yield strict


async def sit(strict: RunningSuite, open_page: Open, name: str, event_id: str, size: Any = DESKTOP) -> Page:
    """A screen of this event, with this operator before it."""
    page = await open_page(strict, signed_in=False, size=size)
    answer = await page.context.request.post(f"{strict.url}/console/session", data={"key": KEYS[name]})
    assert answer.ok, await answer.text()
    await page.goto(f"{strict.url}/console/events/{event_id}")
    await page.locator("[data-tile]").first.wait_for(timeout=LATE_MS)
    return page


def form(page: Page, name: str) -> Locator:
    return page.locator(f"dialog [data-action='{name}']")


async def ask(page: Page, event_id: str, *buttons: str, name: str, label: str, reason: str) -> Locator:
    """Fills the form in, sends it and, as it is refused, asks a second person; what the form then says."""
    for button in buttons:
        await page.get_by_role("navigation", name="Controls").get_by_role("button", name=button).click()
    at = form(page, name)
    await at.get_by_role("button", name=f"{label}…", exact=True).click()
    await at.locator("[name=reason]").fill(reason)
    await at.locator("[name=typed]").fill(event_id)
    await at.get_by_role("button", name=label, exact=True).click()
    second = at.locator("[data-second-person]")
    await expect(second).to_contain_text("Another operator must agree", timeout=LATE_MS)
    await expect(second.get_by_role("button", name="Ask a second person")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(second).to_contain_text("Waiting for a second person", timeout=LATE_MS)
    return at


async def room(strict: RunningSuite, event_id: str) -> str:
    async with strict.operator() as operator:
        return str((await operator.get(f"/admin/events/{event_id}/room")).json()["state"])


async def test_one_asks_another_approves_and_the_room_closes(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id)
    ben = await sit(strict, open_page, "ben", event_id, PHONE)
    vic = await sit(strict, open_page, "vic", event_id)
    waits = await ask(ana, event_id, "Pause…", name="close", label="Close", reason="The hall is flooded")
    assert await violations(ana) == []
    assert await room(strict, event_id) == "open"
    for page in (ben, vic):
        notice = page.locator("[data-approval=pending]")
        await expect(notice).to_contain_text("ana asks to close the room", timeout=LATE_MS)
        await expect(notice).to_contain_text("The hall is flooded")
    await expect(vic.locator("[data-approval]").get_by_role("button")).to_have_count(0)
    assert await violations(ben) == []
    await ben.locator("[data-approval]").get_by_role("button", name="Approve").focus()
    await ben.keyboard.press("Enter")
    await expect(waits.locator("[data-done]")).to_have_text("Closed.", timeout=LATE_MS)
    assert await room(strict, event_id) == "closed"
    await expect(ben.locator("[data-approval]")).to_have_count(0)
    await expect(ben.locator(".timeline")).to_contain_text("ana, approved by ben", timeout=LATE_MS)
    async with strict.operator() as operator:
        entries = (await operator.get(f"/admin/queue/events/{event_id}/changes")).json()["changes"]
    assert ("close", "ana, approved by ben", "The hall is flooded") in {
        (entry["action"], entry["actor"], entry["reason"]) for entry in entries
    }


async def test_nobody_approves_alone_and_a_refusal_changes_nothing(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id)
    again = await sit(strict, open_page, "ana", event_id)
    ben = await sit(strict, open_page, "ben", event_id)
    waits = await ask(ana, event_id, "Orders", name="refund-all", label="Refund the whole event", reason="Cancelled")
    mine = again.locator("[data-approval=pending]")
    await expect(mine).to_contain_text("You ask to refund the whole event", timeout=LATE_MS)
    await expect(mine.get_by_role("button")).to_have_text(["Withdraw"])
    path = f"{strict.url}/console/api/events/{event_id}/approvals"
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEYS['ana']}"}) as client:
        [asked] = (await client.get(path)).json()["approvals"]
        assert problem(await client.post(f"{path}/{asked['id']}/approve")) == (403, "second-person-needed")
    notice = ben.locator("[data-approval=pending]")
    await expect(notice).to_contain_text("Rate per s: 10 · Return to sale: no", timeout=LATE_MS)
    await notice.get_by_role("button", name="Refuse").click()
    await expect(waits.locator("[data-second-person=refused]")).to_contain_text("ben has refused", timeout=LATE_MS)
    await waits.get_by_role("button", name="Close").click()
    await expect(again.locator("[data-approval]")).to_have_count(0, timeout=LATE_MS)
    async with strict.operator() as operator:
        answer = await operator.get(f"/admin/orders/events/{event_id}/refund")
    assert answer.status_code == 404, "no refund has begun"


async def test_who_left_the_form_withdraws_or_does_it_on_the_screen(strict: RunningSuite, open_page: Open) -> None:
    event_id = await strict.open_event()
    ana = await sit(strict, open_page, "ana", event_id, PHONE)
    ben = await sit(strict, open_page, "ben", event_id)
    await ask(ana, event_id, "Pause…", name="close", label="Close", reason="Enough")
    await ana.reload()
    await ana.locator("[data-approval=pending]").get_by_role("button", name="Withdraw").click(timeout=LATE_MS)
    await expect(ben.locator("[data-approval]")).to_have_count(0, timeout=LATE_MS)
    await ask(ana, event_id, "Pause…", name="close", label="Close", reason="Enough")
    await ana.keyboard.press("Escape")
    await ben.locator("[data-approval=pending]").get_by_role("button", name="Approve").click(timeout=LATE_MS)
    agreed = ana.locator("[data-approval=approved]")
    await expect(agreed).to_contain_text("ben agrees that you close the room", timeout=LATE_MS)
    await agreed.get_by_role("button", name="Do it now").click()

    async def is_closed() -> bool:
        return await room(strict, event_id) == "closed"

    await wait_until(is_closed)
    await expect(ana.locator("[data-approval]")).to_have_count(0)
