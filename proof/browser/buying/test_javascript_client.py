"""`/onsale.js` waits and hears updates by stream, and by polls where there is none."""

from typing import Any

from tests.browser.buying.test_ways import shops_page
from tests.browser.steps import UPDATES, WaitingEvent

JOIN_AND_WAIT = """async (event) => {
  const { Client, Fan } = await import("/onsale.js");
  window.fan = new Fan(new Client(), event);
  await fan.join();
  window.seen = [];
  window.waited = fan.wait((place) => seen.push(place.status));
  return fan.place.position_in_queue;
}"""


async def test_a_call_ends_the_wait_with_and_without_a_stream(page: Any, event: WaitingEvent) -> None:
    """The tokens stay in cookies that scripts cannot read."""
    for streams in (True, False):
        if not streams:
            await page.context.clear_cookies()
            await page.route(UPDATES, lambda route: route.abort())
        await event.operate("PATCH", event.room, {"max_active": 0, "reason": "test"})
        await shops_page(page, f"{event.suite.url}/shop.html")
        assert await page.evaluate(JOIN_AND_WAIT, event.event_id) >= 0
        await event.operate("PATCH", event.room, {"max_active": 5, "reason": "test"})
        place = await page.evaluate("() => waited")
        assert (place["status"], await page.evaluate("() => seen.at(-1)")) == ("ready", "ready")
        answer = await page.evaluate("() => fan.claim()")
        assert answer["pass"]
        kept = "() => [fan.queueToken ?? null, fan.pass ?? null, document.cookie.includes('pass')]"
        assert await page.evaluate(kept) == [None, None, False]


async def test_updates_come_by_stream_and_by_polls_where_there_is_none(page: Any, event: WaitingEvent) -> None:
    await shops_page(page, f"{event.suite.url}/shop.html")
    await page.evaluate(JOIN_AND_WAIT, event.event_id)
    hear = """(n) => new Promise((done) => {
      const heard = {}, states = [];
      const tell = (kind) => (frame) => {
        heard[kind] = frame;
        if (heard.line && heard.sections) { stop(); done([states, heard.sections.sections[0].available_seats]); }
      };
      const stop = fan.updates({ line: tell("line"), sections: tell("sections") }, (state) => states.push(state));
    })"""
    states, left = await page.evaluate(hear)
    assert (states, left) == (["live"], 90)
    await page.route(UPDATES, lambda route: route.abort())
    states, left = await page.evaluate(hear)
    assert ("live" in states, left) == (False, 90)
