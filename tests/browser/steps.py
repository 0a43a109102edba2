"""Steps that persons and operators repeat in these tests."""

import uuid
from typing import Any, Protocol

import httpx
from playwright import sync_api

TURN_MS = 30_000
OWNERS = ("inventory", "orders", "queue")


class Suite(Protocol):
    url: str
    opened: list[str]

    @property
    def admin_key(self) -> str: ...


def operator(suite: Suite) -> httpx.Client:
    return httpx.Client(base_url=suite.url, headers={"authorization": f"Bearer {suite.admin_key}"}, timeout=20)


def put_on_sale(suite: Suite, **facts: Any) -> str:
    """An open event with these facts; its id."""
    event_id = f"t-{uuid.uuid4().hex[:12]}"
    event = {"event_id": event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
             "starts_at": "2030-01-01T20:00:00Z", **facts}  # fmt: skip
    with operator(suite) as admin:
        for service in OWNERS:
            admin.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        admin.post(f"/admin/events/{event_id}/room/open", json={}).raise_for_status()
    suite.opened.append(event_id)
    return event_id


def come_to_choose(page: Any, suite: Suite, event_id: str = "arena-2026") -> None:
    """From the catalogue to the choice of tickets."""
    page.goto(f"{suite.url}/")
    page.locator(f"#events a[href='/e/{event_id}']").click()
    join(page)


def join(page: Any) -> None:
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=TURN_MS)


def pick_a_seat(page: Any, section_id: str) -> str:
    """The name the basket gives to the seat."""
    page.locator(f"#section-{section_id} button").click()
    page.locator("#seats .seat[data-status=available]").first.click()
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    name: str = page.locator("#basket-list").inner_text()
    page.locator("#seats-back").click()
    return name


def pick_on_the_floor(page: Any) -> None:
    page.get_by_role("button", name="One more ticket").first.click()


def hold(page: Any) -> None:
    page.locator("#hold").click()
    sync_api.expect(page.locator("#held")).to_be_visible()


def pay(page: Any, method: str | None = "ok") -> None:
    """Whoever pays nothing chooses no method."""
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    if method:
        page.locator("#method").select_option(method)
    page.locator("#pay").click()
    page.wait_for_url("**/o/*")


def hold_and_pay(page: Any, method: str) -> None:
    hold(page)
    pay(page, method)


def is_confirmed(page: Any) -> None:
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=TURN_MS)
