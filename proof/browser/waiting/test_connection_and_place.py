"""The event page shows the true state of its connection and of the fan's place, and the reason for it.

More time to choose, given by a running suite.

A link with a join key chosen by an attacker: the fan who follows it gets a place that the attacker cannot use.
"""

import json
import re
import uuid
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.async_api import expect

from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    UPDATES,
    WaitingEvent,
    enter,
    expect_connection,
    join_and_wait,
    put_on_sale,
)
from tests.support.running.suite import RunningSuite, bearer, fan_of

HIDE = "() => { window.isHidden = true; document.dispatchEvent(new Event('visibilitychange')); }"
SHOW = "() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }"
MOCK_VISIBILITY = """
    window.isHidden = false;
    Object.defineProperty(document, "hidden", { get: () => window.isHidden });
    Object.defineProperty(document, "visibilityState", { get: () => (window.isHidden ? "hidden" : "visible") });
"""


async def test_a_page_without_a_network_shows_that_and_the_age_of_its_figures(page: Any, event: WaitingEvent) -> None:
    await join_and_wait(page, event)
    await expect_connection(page, "live")
    await page.context.set_offline(True)
    await expect_connection(page, "offline")
    await expect(page.locator("#connection-text")).to_contain_text("As of ")
    await expect(page.locator("#line-as-of")).to_be_visible()
    await page.context.set_offline(False)
    await expect_connection(page, "live")
    await expect(page.locator("#line-as-of")).to_be_hidden()


async def test_a_page_with_a_silent_stream_and_unanswered_polls_is_offline(page: Any, event: WaitingEvent) -> None:
    await page.clock.install()
    await join_and_wait(page, event)
    await expect_connection(page, "live")
    await page.route("**/events/**", lambda route: None)
    await page.clock.fast_forward(90_000)
    await page.clock.run_for(90_000)
    await expect_connection(page, "offline")
    await page.unroute("**/events/**")


async def test_a_page_polls_when_the_server_says(page: Any, event: WaitingEvent) -> None:
    """A long line polls as seldom as its liveness window allows: only so many fans fit."""

    async def much_later(route: Any) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=await answer.json() | {"poll_after_ms": 240_000})

    await page.add_init_script(
        "const later = window.setTimeout; let longest = 0; window.setTimeout = (call, ms) => {"
        "  longest = Math.max(longest, ms || 0); document.documentElement.dataset.longest = Math.round(longest);"
        "  return later(call, ms); };"
    )
    await page.route("**/queue/status", much_later)
    await join_and_wait(page, event)
    soon, late = "19[0-9]{4}", "2[0-4][0-9]{4}"
    expected = re.compile(f"^({soon}|{late})$")
    await expect(page.locator("html")).to_have_attribute("data-longest", expected, timeout=30_000)
    await page.unroute_all(behavior="ignoreErrors")


async def test_a_page_whose_stream_was_rejected_shows_that_and_polls(page: Any, event: WaitingEvent) -> None:
    stream = 'retry: 60000\nevent: turned_away\ndata: {"why": "lag"}\n\n'
    await page.route(UPDATES, lambda route: route.fulfill(body=stream, content_type="text/event-stream"))
    await join_and_wait(page, event)
    await expect_connection(page, "crowded")
    await event.set_message("Doors at eight")
    await expect(page.locator("#notice")).to_have_text("Doors at eight", timeout=15_000)
    await expect_connection(page, "crowded")


async def test_a_called_fan_with_a_hidden_page_is_alerted_and_claims_on_their_return(
    page: Any, event: WaitingEvent
) -> None:
    await page.add_init_script(MOCK_VISIBILITY)
    await join_and_wait(page, event)
    claims: list[str] = []
    page.on("request", lambda request: claims.append(request.url) if request.url.endswith("/pass") else None)
    await page.evaluate(HIDE)
    await event.operate("PATCH", event.room, {"max_active": 5, "reason": "test"})
    await expect(page.locator("#called")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#called-window")).to_contain_text("Time to come in: 1:")
    await page.wait_for_function("document.title.includes('your turn') || document.title.includes('●')")
    assert claims == [], "the session begins when the fan is back"
    await page.evaluate(SHOW)
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    assert len(claims) == 1


@pytest.mark.parametrize(
    ("status", "title"),
    [
        ({"status": "expired", "why": "session"}, "Your time to choose has run out"),
        ({"status": "expired", "why": "unclaimed"}, "Your turn has passed"),
        ({"status": "left"}, "You left the line"),
    ],
    ids=["session", "unclaimed", "left"],
)
async def test_the_end_of_a_place_is_shown_with_its_reason(
    page: Any, event: WaitingEvent, status: dict[str, str], title: str
) -> None:
    await join_and_wait(page, event)
    place = {"join_seq": 1, "position_in_queue": 0, "estimated_wait_time": 0, "head_seq": 1, "poll_after_ms": 1000}
    body = json.dumps({**place, "message": None, "estimate_changed": None, **status})
    await page.route("**/queue/status", lambda route: route.fulfill(body=body, content_type="application/json"))
    await page.reload()
    await expect(page.locator("#ended-title")).to_have_text(title)


async def test_a_waiting_fan_sees_that_the_room_is_draining(page: Any, event: WaitingEvent) -> None:
    await join_and_wait(page, event)
    await event.operate("POST", f"{event.room}/drain", {"reason": "test"})
    await expect(page.locator("#notice")).to_contain_text("takes nobody new", timeout=CALL_TIMEOUT_MS)


def places_taken(event: WaitingEvent) -> int:
    line = httpx.get(f"{event.suite.url}/events/{event.event_id}/queue").json()
    return int(line["tail_seq"])


async def test_a_browser_without_cookies_takes_no_place_and_shows_why(cookieless: Any, event: WaitingEvent) -> None:
    await cookieless.goto(f"{event.suite.url}/e/{event.event_id}")
    await cookieless.locator("#join").click()
    await expect(cookieless.locator("#trouble-text")).to_contain_text("keeps no cookies")
    assert places_taken(event) == 0


async def test_a_place_whose_cookie_is_not_stored_is_left_at_once(page: Any, event: WaitingEvent) -> None:
    async def without_cookie(route: Any) -> None:
        answer = await route.fetch()
        headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
        await route.fulfill(response=answer, headers=headers)
        await page.context.clear_cookies()

    deletions: list[int] = []
    page.on("response", lambda answer: deletions.append(answer.status) if answer.request.method == "DELETE" else None)
    await page.route(
        "**/queue", lambda route: without_cookie(route) if route.request.method == "POST" else route.fallback()
    )
    await page.goto(f"{event.suite.url}/e/{event.event_id}")
    await page.locator("#join").click()
    await expect(page.locator("#trouble-text")).to_contain_text("keeps no cookies", timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#lobby")).to_be_visible()
    assert deletions == [204]


async def test_a_short_session_lasts_longer_in_the_running_suite(page: Any, suite: RunningSuite) -> None:
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
    event_id = await put_on_sale(suite, room={"session_s": 60}, sections=[floor])
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.wait_for_timeout(2_500)
    left = await page.locator("#session-clock").inner_text()
    await page.locator("#more-session").click()
    await expect(page.locator("#more-session")).to_be_hidden()
    assert await page.locator("#session-clock").inner_text() > left
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible()


KEY = "A" * 24  # the form of the browser ids of forward-auth


async def test_a_link_with_a_chosen_key_gives_its_maker_nothing_of_the_fan(chromium: Any, suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    context = await chromium.new_context()
    page = await context.new_page()
    async with suite.browser() as attacker:
        planted = {"return_to": "https://shop.example/", "gate": KEY}
        headers = {"idempotency-key": KEY}
        before = await attacker.post(f"/events/{event_id}/queue", headers=headers)
        await page.goto(f"{suite.url}/e/{event_id}#{urlencode(planted)}")
        await page.locator("#join").click()
        await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
        reference = await _buy(page, f"{uuid.uuid4().hex}@example.org")
        [cookie] = [c for c in await context.cookies() if c["name"] == f"onsale_queue_{event_id}"]
        after = [
            await attacker.post(f"/events/{event_id}/queue", headers=headers | more)
            for more in ({}, {"origin": suite.url}, {"origin": suite.url, "cookie": "onsale_browser=" + "A" * 32})
        ]
        places = {answer.json()["join_seq"]: answer.json()["queue_token"] for answer in (before, *after)}
        assert len(places) == 2, "one place by the key alone, one by the key with a made-up secret"
        for token in places.values():
            assert token != cookie["value"]
            attacking = fan_of(attacker, event_id)
            attacking.queue_token = token
            await attacking.wait()
            admission = (await attacking.claim())["pass"]
            listed = await attacker.get("/orders", headers=bearer(admission))
            assert listed.json()["orders"] == [], "the attacker sees the fan's order"
            for path in ("", "/tickets", "/tickets.pdf", "/receipt.pdf"):
                assert (await attacker.get(f"/orders/{reference}{path}", headers=bearer(admission))).status_code == 404
    await context.close()


async def test_a_browser_whose_join_answer_was_lost_keeps_its_one_place(chromium: Any, suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0})
    context = await chromium.new_context()
    page = await context.new_page()
    numbers: list[Any] = []

    async def lose_the_first(route: Any) -> None:
        if route.request.method != "POST" or numbers:
            return await route.continue_()
        answer = await route.fetch()
        numbers.append((await answer.json())["join_seq"])
        await context.clear_cookies(name=f"onsale_queue_{event_id}")
        return await route.abort()

    await page.route(f"**/events/{event_id}/queue", lose_the_first)
    await page.goto(f"{suite.url}/e/{event_id}")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#join-seq")).to_have_text(str(numbers[0]))
    await context.close()


async def _buy(page: Any, email: str) -> str:
    await page.get_by_role("button", name="One more ticket").first.click()
    await page.locator("#hold").click()
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill(email)
    await page.locator("#method").select_option("ok")
    await page.locator("#pay").click()
    await page.wait_for_url("**/o/*")
    await expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=CALL_TIMEOUT_MS)
    reference = await page.locator("#reference").inner_text()
    return str(reference)
