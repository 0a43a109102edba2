"""When live updates fail, the page polls, shows it, and returns to the stream."""

from typing import Any

import redis
from playwright import sync_api

from tests.browser.steps import CONNECTION_TIMEOUT_MS, UPDATES, WaitingEvent, expect_connection, join_and_wait
from tests.support.running.suite import RunningSuite


def test_a_page_without_a_stream_polls_until_the_stream_is_back(page: Any, event: WaitingEvent) -> None:
    page.route(UPDATES, lambda route: route.abort())
    join_and_wait(page, event)
    expect_connection(page, "polling")
    event.set_message("Doors at eight")
    sync_api.expect(page.locator("#notice")).to_have_text("Doors at eight", timeout=CONNECTION_TIMEOUT_MS)
    expect_connection(page, "polling")
    page.unroute(UPDATES)
    expect_connection(page, "live")


def test_a_page_shows_that_redis_pubsub_is_lost_and_back(page: Any, event: WaitingEvent, suite: RunningSuite) -> None:
    join_and_wait(page, event)
    expect_connection(page, "live")
    client = redis.Redis.from_url(suite.engines["redis_url"])
    try:
        client.execute_command("ACL", "SETUSER", "default", "-subscribe", "-ssubscribe", "-psubscribe")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        sync_api.expect(page.locator("#notice")).to_contain_text(
            "Live updates are interrupted", timeout=CONNECTION_TIMEOUT_MS
        )
        expect_connection(page, "degraded")
        client.execute_command("ACL", "SETUSER", "default", "+subscribe", "+ssubscribe", "+psubscribe")
        sync_api.expect(page.locator("#notice")).to_be_hidden(timeout=CONNECTION_TIMEOUT_MS)
        expect_connection(page, "live")
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+@all")
        client.close()
