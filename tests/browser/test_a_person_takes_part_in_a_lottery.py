"""One person in a pre-queue with a lottery: told what is drawn and when, then which place it gave."""

import re
import uuid
from typing import Any

import httpx
from playwright import sync_api

from shared.clock import now_ms, rfc3339
from tests.support.browser import NEEDS_CHROMIUM
from tests.support.suite import RunningSuite, bearer

pytestmark = NEEDS_CHROMIUM


def lottery_event(entry_closes_in_ms: int) -> dict[str, Any]:
    known_ms = now_ms() + entry_closes_in_ms + 2_000
    value = {"what": "the closing number of an index", "known_at": rfc3339(known_ms)}
    rules = {"entry_closes_at": rfc3339(known_ms - 2_000), "public_value": value}
    return {
        "event_id": f"t-{uuid.uuid4().hex[:12]}", "name": "By lot", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z",
        "room": {"ordering": "lottery", "lottery": rules, "rate_per_s": 0,
                 "sale_starts_at": rfc3339(known_ms + 20_000)},
        "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
    }  # fmt: skip


def test_a_person_is_told_what_is_drawn_and_which_place_it_gave(page: Any, suite: RunningSuite) -> None:
    event = lottery_event(entry_closes_in_ms=8_000)
    event_id = event["event_id"]
    admin = f"/admin/queue/events/{event_id}"
    with httpx.Client(base_url=suite.url, headers=bearer(suite.admin_key), timeout=20) as operator:
        for service in ("inventory", "orders", "queue"):
            operator.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        operator.post(f"{admin}/room/open", json={}).raise_for_status()
        page.goto(f"{suite.url}/e/{event_id}")
        told = sync_api.expect(page.locator("#lottery-text"))
        told.to_contain_text("drawn with the closing number of an index")
        page.locator("#join").click()
        sync_api.expect(page.locator("#waiting")).to_be_visible()
        sync_api.expect(page.locator("#in-line")).to_be_hidden()
        told.to_contain_text("Entry to the lottery has closed", timeout=30_000)
        sync_api.expect(page.locator("#lottery-link")).to_have_attribute("href", f"/events/{event_id}/queue/lottery")
        for _ in range(200):
            if operator.post(f"{admin}/lottery/draw", json={"public_value": "24331.09"}).status_code == 200:
                break
            page.wait_for_timeout(100)
    told.to_contain_text(re.compile("Your number 1 got place 1"), timeout=30_000)
