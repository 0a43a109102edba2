"""The lottery on the event page: a fan sees how and when it is drawn, then their place, and checks the draw."""

import re
from typing import Any

from playwright.async_api import expect

from features.lottery.arithmetic import Permutation, draw_key
from features.pages.gateway.documents import BUILT
from shared.runtime.clock import now_ms, rfc3339
from shared.web.built_files import assets
from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

CHECK = assets(BUILT)["lottery_check.en.js"].name


async def put_lottery_on_sale(suite: RunningSuite, *, entry_closes_in_ms: int) -> str:
    """An event whose lottery can be drawn 2 s after entry has closed, 20 s before the sale starts."""
    closes_ms = now_ms() + entry_closes_in_ms
    value = {"what": "the closing number of an index", "known_at": rfc3339(closes_ms + 2_000)}
    rules = {"entry_closes_at": rfc3339(closes_ms), "public_value": value}
    starts_at = rfc3339(closes_ms + 22_000)
    return await put_on_sale(
        suite,
        room={"ordering": "lottery", "lottery": rules, "rate_per_s": 0, "sale_starts_at": starts_at},
        sections=[{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
    )


async def test_a_fan_sees_how_the_lottery_is_drawn_and_which_place_they_got(page: Any, suite: RunningSuite) -> None:
    event_id = await put_lottery_on_sale(suite, entry_closes_in_ms=15_000)
    await page.goto(f"{suite.url}/e/{event_id}")
    text = expect(page.locator("#lottery-text"))
    await text.to_contain_text("drawn with the closing number of an index")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible()
    await expect(page.locator("#in-line")).to_be_hidden()
    await text.to_contain_text("Entry to the lottery has closed", timeout=45_000)
    await expect(page.locator("#lottery-link")).to_have_attribute("href", f"/events/{event_id}/queue/lottery")
    async with suite.operator() as admin:
        for _ in range(200):
            answer = await admin.post(f"/admin/queue/events/{event_id}/lottery/draw", json={"public_value": "24331.09"})
            if answer.status_code == 200:
                break
            await page.wait_for_timeout(100)
    await text.to_contain_text(re.compile("Your number 1 got place 1"), timeout=30_000)
    await page.locator("#lottery-check").click()
    checks = page.locator("#lottery-checks li")
    await expect(checks.filter(has_text="The secret is the one committed to")).to_have_attribute("data-holds", "true")
    await expect(checks.filter(has_text="Your number 1 got its place")).to_have_attribute("data-holds", "true")
    await expect(page.locator("#lottery-checks li[data-holds=false]")).to_have_count(0)
    await expect(page.locator("#waiting")).to_be_visible()
    await check_computations(page)
    await check_detection_of_another_seed(page)


async def check_computations(page: Any) -> None:
    """The page computes the same draw keys and permutations as `features.lottery.arithmetic`."""
    published = {"event_id": "arena", "epoch": 3, "seed": "ab" * 32, "public_value": "24331.09 €",
                 "entrants": {"0": {"n": 7, "hash": "cd" * 32}}}  # fmt: skip
    script = "async (published) => { const { drawKey } = await import('/static/" + CHECK + "'); "
    key = await page.evaluate(script + "return Array.from(await drawKey(published, 0)); }", published)
    assert bytes(key) == draw_key(
        bytes.fromhex("ab" * 32), "24331.09 €", event_id="arena", epoch=3, lane=0, entrants_n=7, entrants_hash="cd" * 32
    )
    script = "async ([n, key]) => { const { order } = await import('/static/" + CHECK + "'); "
    script += "const rank = await order(n, new Uint8Array(key)); "
    script += "return Array.from({ length: n + 1 }, (_, i) => rank(i + 1)); }"
    for n in (1, 2, 3, 10, 17, 1000):
        permutation = Permutation(n, bytes(key))
        assert await page.evaluate(script, [n, key]) == [permutation.rank(entry) for entry in range(1, n + 2)]


async def check_detection_of_another_seed(page: Any) -> None:
    """A published seed that does not match the commitment fails the page's check."""
    await page.route("**/queue/lottery", answer_with_another_seed)
    await page.locator("#lottery-check").click()
    check = page.locator("#lottery-checks li").filter(has_text="The secret is the one committed to")
    await expect(check).to_have_attribute("data-holds", "false")


async def answer_with_another_seed(route: Any) -> None:
    answer = await route.fetch()
    await route.fulfill(response=answer, json={**await answer.json(), "seed": "00" * 32})
