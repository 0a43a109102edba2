"""When live updates fail, the page polls, shows it, and returns to the stream."""

from typing import Any

import redis
from playwright.async_api import expect

from tests.browser.steps import CONNECTION_TIMEOUT_MS, UPDATES, WaitingEvent, expect_connection, join_and_wait
from tests.support.running.suite import RunningSuite


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
