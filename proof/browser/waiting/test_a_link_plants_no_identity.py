"""A link with a join key chosen by an attacker: the fan who follows it gets a place that the attacker cannot use."""

import uuid
from typing import Any
from urllib.parse import urlencode

from playwright.async_api import expect

from tests.browser.steps import CALL_TIMEOUT_MS
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer

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
