"""When live updates fail, the page polls, shows it, and returns to the stream.

A browser's EventSource receives a stream on every transport, and resumes it after a reconnect.
"""

from typing import Any

import redis
from playwright.async_api import expect

from tests.browser.steps import CONNECTION_TIMEOUT_MS, UPDATES, WaitingEvent, expect_connection, join_and_wait
from tests.notifier.conftest import TRANSPORTS, Notifier, Start, neighbours, redis_proxy, start
from tests.notifier.frames import EVENT, FIRST, REFERENCE, frame_id
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def test_a_page_without_a_stream_polls_until_the_stream_is_back(page: Any, event: WaitingEvent) -> None:
    await page.route(UPDATES, lambda route: route.abort())
    await join_and_wait(page, event)
    await expect_connection(page, "polling")
    await event.set_message("Doors at eight")
    await expect(page.locator("#notice")).to_have_text("Doors at eight", timeout=CONNECTION_TIMEOUT_MS)
    await expect_connection(page, "polling")
    await page.unroute(UPDATES)
    await expect_connection(page, "live")


async def test_a_page_shows_that_redis_pubsub_is_lost_and_back(
    page: Any, event: WaitingEvent, suite: RunningSuite
) -> None:
    await join_and_wait(page, event)
    await expect_connection(page, "live")
    client = redis.Redis.from_url(suite.engines["redis_url"])
    try:
        client.execute_command("ACL", "SETUSER", "default", "-subscribe", "-ssubscribe", "-psubscribe")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await expect(page.locator("#notice")).to_contain_text(
            "Live updates are interrupted", timeout=CONNECTION_TIMEOUT_MS
        )
        await expect_connection(page, "degraded")
        client.execute_command("ACL", "SETUSER", "default", "+subscribe", "+ssubscribe", "+psubscribe")
        await expect(page.locator("#notice")).to_be_hidden(timeout=CONNECTION_TIMEOUT_MS)
        await expect_connection(page, "live")
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")
        client.close()


__all__ = ["neighbours", "redis_proxy", "start"]
OPEN_STREAM = """path => {
    window.events = []; window.opened = 0;
    const source = new EventSource(path);
    source.onopen = () => { window.opened += 1; };
    for (const name of ['line', 'sections', 'notice', 'order'])
        source.addEventListener(name, event => events.push([name, JSON.parse(event.data), event.lastEventId]));
}"""


async def test_an_event_source_receives_events_and_resumes_on_every_transport(start: Start, chromium: Any):
    for number, transport in zip((20, 30, 40), TRANSPORTS, strict=True):
        await receive_and_resume(await start(transport=transport, retry_ms=100), chromium, number)


async def receive_and_resume(notifier: Notifier, chromium: Any, number: int) -> None:
    url = f"http://127.0.0.1:{notifier.port}"
    context = await chromium.new_context()
    cookie = f"onsale_order_{REFERENCE}" if notifier.of_order else f"onsale_queue_{EVENT}"
    await context.add_cookies([{"name": cookie, "value": notifier.token(), "url": url}])
    page = await context.new_page()
    await page.goto(f"{url}/livez")
    await page.evaluate(OPEN_STREAM, notifier.path)

    async def holds(expression: str) -> bool:
        return bool(await page.evaluate(expression))

    count = len(notifier.names)
    await wait_until(lambda: holds(f"events.length === {count}"))
    assert [name for name, _, _ in await page.evaluate("events")] == notifier.names
    hub = notifier.state.hub
    for connection in hub:
        hub.close(connection)
    await wait_until(lambda: holds("opened === 2"))
    await wait_until(lambda: len(hub) == 1)
    await notifier.publish_number(number)
    await wait_until(lambda: holds(f"events.length > {count}"))
    name, data, last_id = (await page.evaluate("events"))[count]
    assert (name, str(number) in str(data)) == (notifier.names[0], True)
    sent = f"0.{FIRST + number}" if notifier.of_order else frame_id(number, 10)
    assert last_id == sent, "events it had received were not sent again"
    await context.close()
    await wait_until(lambda: len(hub) == 0)
