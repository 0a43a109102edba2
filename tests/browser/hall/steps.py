"""Steps on the map of the hall, and what a page's map says of its seats."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from playwright import sync_api

from tests.browser.steps import CALL_TIMEOUT_MS, enter, put_on_sale
from tests.support.running.suite import RunningSuite, bearer, no_cookies
from tests.support.wait import until

FRONT = {"name": "Front", "rows": [1, 1], "price_minor": 9000}
SECTIONS: list[dict[str, Any]] = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 6, "seats_per_row": 10, "price_minor": 5000,
     "price_levels": [FRONT]},
    {"section_id": "B", "name": "Block B", "kind": "seated", "rows": 5, "seats_per_row": 8, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]  # fmt: skip


AVAILABLE, IN_A_BASKET = "available$", "in somebody's basket$"


def open_hall(page: Any, suite: RunningSuite, **event: Any) -> str:
    """A new event whose tickets the page may choose; its id."""
    event_id = put_on_sale(suite, **{"sections": SECTIONS, **event})
    page.goto(f"{suite.url}/e/{event_id}")
    enter(page)
    sync_api.expect(page.locator("#hall")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    return event_id


def section(page: Any, section_id: str) -> Any:
    """The section's button in the overview."""
    return page.locator(f"button.hall-label[data-section={section_id}]")


def open_section(page: Any, section_id: str) -> None:
    section(page, section_id).click()
    sync_api.expect(page.locator(".hall-canvas")).to_be_visible()


def cursor(page: Any) -> Any:
    return page.locator(".hall-cursor")


def expect_cursor(page: Any, *words: str) -> None:
    """The name of the seat cursor has these words."""
    for text in words:
        sync_api.expect(cursor(page)).to_have_attribute("aria-label", re.compile(text), timeout=CALL_TIMEOUT_MS)


def pixels(page: Any) -> str:
    """What the canvas shows and where it lies, as text to compare."""
    shown: str = page.locator(".hall-canvas").evaluate("""(node) => new Promise((resume) => requestAnimationFrame(() =>
        requestAnimationFrame(() => resume(node.style.transform + node.toDataURL()))))""")
    return shown


def until_painted(page: Any, before: str) -> str:
    """The canvas once it shows something else than before."""
    until(lambda: pixels(page) != before, what="other seats on the canvas")
    return pixels(page)


@contextmanager
def another_fan(suite: RunningSuite, event_id: str) -> Iterator["OtherFan"]:
    with httpx.Client(base_url=suite.url, timeout=20, cookies=no_cookies()) as client:
        yield OtherFan(client, event_id)


class OtherFan:
    """A fan without a page, who holds and gives back."""

    def __init__(self, client: httpx.Client, event_id: str) -> None:
        self._client, self._path = client, f"/events/{event_id}"
        token = self._post("/queue", "")["queue_token"]
        until(lambda: self._status(token) == "ready", what="the call")
        self._pass = self._post("/queue/pass", token)["pass"]

    def hold(self, *seats: str) -> str:
        reservation: str = self._post("/reservations", self._pass, {"seats": list(seats)})["reservation_id"]
        return reservation

    def give_back(self, reservation_id: str) -> None:
        self._client.delete(
            f"{self._path}/reservations/{reservation_id}", headers=bearer(self._pass)
        ).raise_for_status()

    def _status(self, token: str) -> str:
        answer = self._client.get(f"{self._path}/queue/status", headers=bearer(token)).raise_for_status()
        status: str = answer.json()["status"]
        return status

    def _post(self, path: str, token: str, body: Any = None) -> Any:
        headers = bearer(token) if token else {}
        return self._client.post(f"{self._path}{path}", json=body, headers=headers).raise_for_status().json()
