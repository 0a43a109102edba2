"""Steps of fans and operators that several browser tests repeat."""

import uuid
from typing import Any

import httpx
from playwright import sync_api

from tests.support.running.suite import RunningSuite, bearer

CALL_TIMEOUT_MS = 30_000
CONNECTION_TIMEOUT_MS = 25_000
LISTED_TRIES_MAX = 20
SOON = "2029-01-01T20:00:00Z"  # before all other events of tests, so that it is on the first page of the list
UPDATES = "**/sections/updates*"  # the page's stream, as a pattern for `page.route`
EVENT_SERVICES = ("inventory", "orders", "queue")


def operator(suite: RunningSuite) -> httpx.Client:
    return httpx.Client(base_url=suite.url, headers=bearer(suite.admin_key), timeout=20)


def put_on_sale(suite: RunningSuite, **fields: Any) -> str:
    """Creates an event with these fields and opens its room; the event's id."""
    event_id: str = fields.get("event_id") or f"t-{uuid.uuid4().hex[:12]}"
    event = {"event_id": event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
             "starts_at": "2030-01-01T20:00:00Z", **fields}  # fmt: skip
    with operator(suite) as admin:
        for service in EVENT_SERVICES:
            admin.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        admin.post(f"/admin/events/{event_id}/room/open", json={}).raise_for_status()
    suite.opened.append(event_id)
    return event_id


class WaitingEvent:
    """An event with an open room that calls nobody yet."""

    def __init__(self, suite: RunningSuite) -> None:
        floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
        self.suite, self.event_id = suite, put_on_sale(suite, room={"max_active": 0}, sections=[floor])
        self.room = f"/admin/events/{self.event_id}/room"

    def operate(self, method: str, path: str, body: Any) -> None:
        with operator(self.suite) as admin:
            admin.request(method, path, json=body).raise_for_status()

    def set_message(self, message: str) -> None:
        self.operate("POST", f"{self.room}/message", {"message": message, "reason": "test"})


def join_and_wait(page: Any, event: WaitingEvent) -> None:
    page.goto(f"{event.suite.url}/e/{event.event_id}")
    page.locator("#join").click()
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)


def expect_connection(page: Any, state: str) -> None:
    connection = page.locator("#connection")
    sync_api.expect(connection).to_have_attribute("data-state", state, timeout=CONNECTION_TIMEOUT_MS)


def wait_until_listed(page: Any, event_id: str) -> None:
    """An event that starts `SOON`. The list of events is rendered once in five seconds."""
    for _ in range(LISTED_TRIES_MAX):
        if page.locator(f"#events a[href='/e/{event_id}']").count():
            return
        page.wait_for_timeout(500)
        page.reload()
    raise AssertionError(f"{event_id} is not listed")


def enter_from_catalogue(page: Any, suite: RunningSuite, event_id: str = "arena-2026") -> None:
    """From the catalogue to the choice of tickets."""
    page.goto(f"{suite.url}/")
    page.locator(f"#events a[href='/e/{event_id}']").click()
    enter(page)


def enter(page: Any) -> None:
    """Joins, and waits until tickets can be chosen."""
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)


def select_seat(page: Any, section_id: str) -> str:
    """The name that the basket gives the seat."""
    page.locator(f"#section-{section_id} button").click()
    page.locator("#seats .seat[data-status=available]").first.click()
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    name: str = page.locator("#basket-list").inner_text()
    page.locator("#seats-back").click()
    return name


def select_ga_ticket(page: Any) -> None:
    page.get_by_role("button", name="One more ticket").first.click()


def hold(page: Any) -> None:
    page.locator("#hold").click()
    sync_api.expect(page.locator("#held")).to_be_visible()


def pay(page: Any, method: str | None = "ok") -> None:
    """Orders; an order of nothing has no payment method."""
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    if method:
        page.locator("#method").select_option(method)
    page.locator("#pay").click()
    page.wait_for_url("**/o/*")


def hold_and_pay(page: Any, method: str) -> None:
    hold(page)
    pay(page, method)


def expect_confirmed(page: Any) -> None:
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=CALL_TIMEOUT_MS)
