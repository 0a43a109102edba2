"""Records anew what the pages' tests are answered, when the API answers differently: half a minute, with a suite of its
own, by `python -m tests.browser.recorded.record`. Tokens are left out.

The events that the recorded answers are about.
"""

import asyncio
import base64
import json
import sys
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.browser.recorded.site import BYTES, RECORDED
from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite, bearer, fan_of, running_suite
from tests.support.wait import wait_until

FLOOR: dict[str, Any] = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}
VENUES: dict[str, dict[str, Any]] = {
    "orchestra": {
        "name": "An evening with the Northern Lights Orchestra", "venue": "Polar Arena", "timezone": "Asia/Tokyo",
        "sections": [
            {"section_id": "A", "name": "Block A, the northern stand behind the stage", "kind": "seated", "rows": 3,
             "seats_per_row": 12, "price_minor": 31000,
             "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 41000}]},
            FLOOR | {"capacity": 900, "price_minor": 6500},
        ],
        "fees": [{"name": "Booking fee", "per": "ticket", "amount_minor": 500}],
    },
    "hall": {
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 6, "seats_per_row": 10,
             "price_minor": 5000, "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 9000}]},
            {"section_id": "B", "name": "Block B", "kind": "seated", "rows": 5, "seats_per_row": 8,
             "price_minor": 4000},
            FLOOR,
        ],
    },
    "stalls": {
        "sections": [
            {"section_id": "A", "name": "Stalls", "kind": "seated", "seats_per_row": 4, "seats": "odd from the right",
             "rows": ["B", "A", {"row": "AA", "seats": [1, 2, "2b", 10]}], "price_minor": 5000,
             "price_levels": [{"name": "Front", "rows": ["B", "A"], "price_minor": 9000}]},
            {"section_id": "B", "name": "Box", "kind": "seated", "rows": 2, "seats_per_row": 2, "price_minor": 9000},
        ],
    },
    "family": {
        "name": "The Nutcracker", "venue": "City Theatre", "sales": {"tickets_per_order": 8},
        "fees": [{"name": "Booking fee", "per": "ticket", "amount_minor": 100}],
        "price_types": [
            {"type_id": "adult", "name": "Adult"},
            {"type_id": "child", "name": "Child", "percent": 50, "per_order": 3, "quota": 40},
            {"type_id": "senior", "name": "Concession", "percent": 80, "proof": "Pension card"},
            {"type_id": "member", "name": "Member", "price_minor": 1000, "codes": ["FRIENDS26"]},
            {"type_id": "early", "name": "Early fan", "percent": 90, "lanes": [2]},
            {"type_id": "chair", "name": "Wheelchair", "percent": 50, "traits": ["wheelchair"]},
            {"type_id": "carer", "name": "Companion", "price_minor": 0, "companion_of": ["chair"],
             "traits": ["companion"]},
        ],
        "sections": [
            {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 4, "seats_per_row": 8, "price_minor": 5000,
             "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 8000, "prices": {"child": 3500}}],
             "traits": {"wheelchair": ["4-1", "4-8"], "companion": ["4-2", "4-7"]}},
            FLOOR | {"name": "Gallery"},
        ],
    },
    "floor": {"sections": [FLOOR]},
    "large": {
        "sections": [
            {"section_id": f"S{n:02}", "name": f"Section {n}", "kind": "seated", "rows": 20, "seats_per_row": 25,
             "price_minor": 4000 + 1000 * (n % 4)}
            for n in range(40)
        ],
    },
}  # fmt: skip


REFERENCE, RESERVATION_ID = "ABCDEFGH2345", "a" * 32
SECRETS = ("queue_token", "pass", "checkout_key", "order_token", "holder")


class Recording:
    """The answers so far, by request."""

    def __init__(self, browser: httpx.AsyncClient) -> None:
        self._browser = browser
        self.answers: dict[str, Any] = {}
        self.replaced: dict[str, str] = {}

    async def get(self, path: str, token: str | None = None, *, name: str = "") -> Any:
        answer = (await self._browser.get(path, headers=bearer(token) if token else {})).raise_for_status()
        kind = answer.headers["content-type"]
        body = answer.json() if kind == "application/json" else {BYTES: base64.b64encode(answer.content).decode()}
        self.keep(name or f"GET {path.partition('?')[0]}", body)
        return body

    def keep(self, name: str, body: Any) -> None:
        self.answers[name] = body

    def text(self) -> str:
        """One answer a line, so that a change is seen."""
        told = sorted(without_secrets(self.answers).items())
        answers = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in told)
        at = json.dumps(datetime.now(UTC).isoformat(timespec="seconds"))
        text = f'{{"recorded_at": {at}, "answers": {{\n{answers}\n}}}}\n'
        for found, name in self.replaced.items():
            text = text.replace(found, name)
        return text


def without_secrets(told: Any) -> Any:
    if isinstance(told, dict):
        return {
            name: f"a {name}" if name in SECRETS and value else without_secrets(value) for name, value in told.items()
        }
    return [without_secrets(each) for each in told] if isinstance(told, list) else told


async def record_venue(recording: Recording, browser: httpx.AsyncClient, event_id: str) -> None:
    """All that a page asks until the fan chooses."""
    path, fan = f"/events/{event_id}", await fan_of(browser, event_id).come_in()
    event = await recording.get(path)
    await recording.get(f"{path}/sections")
    await recording.get(f"{path}/queue")
    parts = [part for section in event["sections"] for part in (section, *section["price_levels"])]
    minors = dict.fromkeys(part["price_minor"] for part in parts)
    of_types = dict.fromkeys(f"{minor}:{type_id}" for part in parts for type_id, minor in part["prices"].items())
    each = "&".join([*(f"each={minor}" for minor in minors), *(f"each_of_type={one}" for one in of_types)])
    await recording.get(f"/orders{path}/prices?{each}")
    await recording.get(f"{path}/map")
    await recording.get(f"{path}/map/state", fan.admission)
    seated = [section for section in event["sections"] if section["kind"] == "seated"]
    for section in seated if len(seated) < 9 else []:
        await recording.get(f"{path}/sections/{section['section_id']}/seats?page=1&page_size=500", fan.admission)


async def record_way(recording: Recording, browser: httpx.AsyncClient, event_id: str) -> None:
    """A fan's way to the tickets, by the names of its steps."""
    fan, path = fan_of(browser, event_id), f"/events/{event_id}"
    recording.keep(f"POST {path}/queue", await fan.join())
    recording.keep("waiting", {**await fan.status(), "status": "waiting"})
    await fan.wait()
    recording.keep("ready", await fan.status())
    recording.keep(f"POST {path}/queue/pass", await fan.claim())
    recording.keep("admitted", await fan.status())
    held = await fan.hold({"seats": ["A-1-6", "A-1-7"], "ga": [{"section_id": "GA1", "quantity": 1}]})
    recording.replaced[held["reservation_id"]] = RESERVATION_ID
    recording.keep(f"POST {path}/reservations", held)
    quote = await fan.client.quote({"reservation_id": held["reservation_id"]}, token=fan.admission)
    recording.keep("POST /orders/quote", quote)
    await recording.get("/payments/providers")
    accepted = await fan.order(held)
    reference, token = accepted["reference"], accepted["order_token"]
    recording.replaced[reference] = REFERENCE
    recording.keep("POST /orders", accepted)
    await fan.settled(accepted)
    tickets: dict[str, Any] = {}

    async def issued() -> bool:
        tickets.update(await recording.get(f"/orders/{reference}/tickets", token))
        return bool(tickets["tickets"])

    await wait_until(issued)
    for ticket in tickets["tickets"]:
        await recording.get(f"/orders/{reference}/tickets/{ticket['ticket_id']}.svg", token)
    await recording.get(f"/orders/{reference}", token)
    await recording.get("/orders", fan.admission)


async def record(suite: RunningSuite) -> str:
    async with suite.browser() as browser:
        recording = Recording(browser)
        for event_id, event in VENUES.items():
            await put_on_sale(suite, event_id=event_id, **event)
            await record_venue(recording, browser, event_id)
        await recording.get("/events")
        await record_way(recording, browser, "hall")
        return recording.text()


def main() -> int:
    with running_suite() as suite:
        RECORDED.write_text(asyncio.run(record(suite)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
