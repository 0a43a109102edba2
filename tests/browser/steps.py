"""Steps of fans and operators that several browser tests repeat."""

import uuid
from typing import Any

from playwright.async_api import expect

from tests.support.running.suite import RunningSuite

CALL_TIMEOUT_MS = 30_000
CONNECTION_TIMEOUT_MS = 25_000
LISTED_TRIES_MAX = 20
SOON = "2029-01-01T20:00:00Z"  # before all other events of tests, so that it is on the first page of the list
UPDATES = "**/sections/updates*"  # the page's stream, as a pattern for `page.route`
EVENT_SERVICES = ("inventory", "orders", "queue")


async def put_on_sale(suite: RunningSuite, **fields: Any) -> str:
    """Creates an event with these fields and opens its room; the event's id."""
    event_id: str = fields.get("event_id") or f"t-{uuid.uuid4().hex[:12]}"
    event = {"event_id": event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
             "starts_at": "2030-01-01T20:00:00Z", **fields}  # fmt: skip
    async with suite.operator() as admin:
        for service in EVENT_SERVICES:
            (await admin.put(f"/admin/{service}/events/{event_id}", json=event)).raise_for_status()
        (await admin.post(f"/admin/events/{event_id}/room/open", json={})).raise_for_status()
    suite.opened.append(event_id)
    return event_id


class WaitingEvent:
    """An event with an open room that calls nobody yet."""

    def __init__(self, suite: RunningSuite, event_id: str) -> None:
        self.suite, self.event_id, self.room = suite, event_id, f"/admin/events/{event_id}/room"

    @classmethod
    async def of(cls, suite: RunningSuite) -> "WaitingEvent":
        floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
        return cls(suite, await put_on_sale(suite, room={"max_active": 0}, sections=[floor]))

    async def operate(self, method: str, path: str, body: Any) -> None:
        async with self.suite.operator() as admin:
            (await admin.request(method, path, json=body)).raise_for_status()

    async def set_message(self, message: str) -> None:
        await self.operate("POST", f"{self.room}/message", {"message": message, "reason": "test"})


async def join_and_wait(page: Any, event: WaitingEvent) -> None:
    await page.goto(f"{event.suite.url}/e/{event.event_id}")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def expect_connection(page: Any, state: str) -> None:
    connection = page.locator("#connection")
    await expect(connection).to_have_attribute("data-state", state, timeout=CONNECTION_TIMEOUT_MS)


async def wait_until_listed(page: Any, event_id: str) -> None:
    """An event that starts `SOON`. The list of events is rendered once in five seconds."""
    for _ in range(LISTED_TRIES_MAX):
        if await page.locator(f"#events a[href='/e/{event_id}']").count():
            return
        await page.wait_for_timeout(500)
        await page.reload()
    raise AssertionError(f"{event_id} is not listed")


async def enter_from_catalogue(page: Any, suite: RunningSuite, event_id: str = "arena-2026") -> None:
    """From the catalogue to the choice of tickets."""
    await page.goto(f"{suite.url}/")
    await page.locator(f"#events a[href='/e/{event_id}']").click()
    await enter(page)


async def enter(page: Any) -> None:
    """Joins, and waits until tickets can be chosen."""
    await page.locator("#join").click()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def select_seat(page: Any, section_id: str) -> str:
    """The name that the basket gives the seat."""
    await page.locator(f"#section-{section_id} button").click()
    await page.locator("#seats .seat[data-status=available]").first.click()
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    name: str = await page.locator("#basket-list").inner_text()
    await page.locator("#seats-back").click()
    return name


async def select_ga_ticket(page: Any) -> None:
    await page.get_by_role("button", name="One more ticket").first.click()


async def hold(page: Any) -> None:
    await page.locator("#hold").click()
    await expect(page.locator("#held")).to_be_visible()


async def pay(page: Any, method: str | None = "ok") -> None:
    """Orders; an order of nothing has no payment method."""
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    if method:
        await page.locator("#method").select_option(method)
    await page.locator("#pay").click()
    await page.wait_for_url("**/o/*")


async def hold_and_pay(page: Any, method: str) -> None:
    await hold(page)
    await pay(page, method)


async def expect_confirmed(page: Any) -> None:
    await expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=CALL_TIMEOUT_MS)
