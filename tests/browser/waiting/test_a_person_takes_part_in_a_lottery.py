"""One person in a pre-queue with a lottery: they see what is drawn and when, then which place they got."""

import re
import uuid
from typing import Any

import httpx
from playwright import sync_api

from shared.rules.lottery_ranking import Permutation, draw_key
from shared.runtime.clock import now_ms, rfc3339
from tests.support.running.browser import NEEDS_CHROMIUM
from tests.support.running.suite import RunningSuite, bearer

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
    event = lottery_event(entry_closes_in_ms=15_000)
    event_id = event["event_id"]
    admin = f"/admin/queue/events/{event_id}"
    with httpx.Client(base_url=suite.url, headers=bearer(suite.admin_key), timeout=20) as operator:
        for service in ("inventory", "orders", "queue"):
            operator.put(f"/admin/{service}/events/{event_id}", json=event).raise_for_status()
        operator.post(f"/admin/events/{event_id}/room/open", json={}).raise_for_status()
        page.goto(f"{suite.url}/e/{event_id}")
        told = sync_api.expect(page.locator("#lottery-text"))
        told.to_contain_text("drawn with the closing number of an index")
        page.locator("#join").click()
        sync_api.expect(page.locator("#waiting")).to_be_visible()
        sync_api.expect(page.locator("#in-line")).to_be_hidden()
        told.to_contain_text("Entry to the lottery has closed", timeout=45_000)
        sync_api.expect(page.locator("#lottery-link")).to_have_attribute("href", f"/events/{event_id}/queue/lottery")
        for _ in range(200):
            if operator.post(f"{admin}/lottery/draw", json={"public_value": "24331.09"}).status_code == 200:
                break
            page.wait_for_timeout(100)
    told.to_contain_text(re.compile("Your number 1 got place 1"), timeout=30_000)
    page.locator("#lottery-check").click()
    checks = page.locator("#lottery-checks li")
    sync_api.expect(checks.filter(has_text="The secret is the one committed to")).to_have_attribute(
        "data-holds", "true"
    )
    sync_api.expect(checks.filter(has_text="Your number 1 got its place")).to_have_attribute("data-holds", "true")
    sync_api.expect(page.locator("#lottery-checks li[data-holds=false]")).to_have_count(0)
    sync_api.expect(page.locator("#waiting")).to_be_visible()
    computes_as_we_do(page)


def computes_as_we_do(page: Any) -> None:
    """The page's arithmetic against ours: keys and whole permutations; and a lie is found."""
    told = {"event_id": "arena", "epoch": 3, "seed": "ab" * 32, "public_value": "24331.09 €",
            "entrants": {"0": {"n": 7, "hash": "cd" * 32}}}  # fmt: skip
    run = "async (told) => { const { drawKey } = await import('/static/lottery_check.js'); "
    key = page.evaluate(run + "return Array.from(await drawKey(told, 0)); }", told)
    assert bytes(key) == draw_key(
        bytes.fromhex("ab" * 32), "24331.09 €", event_id="arena", epoch=3, lane=0, entrants_n=7, entrants_hash="cd" * 32
    )
    for n in (1, 2, 3, 10, 17, 1000):
        run = "async ([n, key]) => { const { order } = await import('/static/lottery_check.js'); "
        run += "const rank = await order(n, new Uint8Array(key)); "
        run += "return Array.from({ length: n + 1 }, (_, i) => rank(i + 1)); }"
        ours = Permutation(n, bytes(key))
        assert page.evaluate(run, [n, key]) == [ours.rank(entry) for entry in range(1, n + 2)]
    page.route("**/queue/lottery", with_another_seed)
    page.locator("#lottery-check").click()
    liar = page.locator("#lottery-checks li").filter(has_text="The secret is the one committed to")
    sync_api.expect(liar).to_have_attribute("data-holds", "false")


def with_another_seed(route: Any) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "seed": "00" * 32})
