"""Every event and every Redis key that a sale writes stands in the reference pages."""

import json
import re

import asyncpg
from redis.asyncio import Redis

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer
from tools.reference import events, redis_keys


async def sell(suite: RunningSuite) -> str:
    """A sale in which fans buy, are declined, release what they hold, and leave."""
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        buyer = await fan_of(browser, event_id).come_in()
        await buyer.buy(await buyer.hold({"seats": ["A-1-1", "A-1-2"]}))
        for_other = await fan_of(browser, event_id).come_in()
        hold = await for_other.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
        path = f"/events/{for_other.event_id}/reservations/{hold['reservation_id']}"
        assert (await browser.delete(path, headers=bearer(for_other.admission))).is_success
        leaver = fan_of(browser, event_id)
        await leaver.join()
        assert (await browser.delete(f"/events/{leaver.event_id}/queue", headers=bearer(leaver.queue_token))).is_success
    return event_id


def known_keys() -> re.Pattern[str]:
    """Of all keys on the page, whatever stands for their variable parts."""
    patterns = (key.pattern for part in redis_keys.keys().values() for key in part)
    parts = (re.sub(r"[A-Z]+(_[A-Z]+)?|0…2", "@", pattern) for pattern in patterns)
    return re.compile("|".join(re.escape(part).replace("@", r"[^:{}]+") for part in parts))


async def test_events_and_keys_of_a_sale_are_on_the_pages(suite: RunningSuite) -> None:
    event_id = await sell(suite)
    connection = await asyncpg.connect(suite.engines["postgres_url"].replace("+asyncpg", ""))
    seen: set[str] = set()
    for service in ("queue", "inventory", "orders"):
        written = f"SELECT event FROM {service}.outbox_batch, jsonb_array_elements(events) event"
        for (body,) in await connection.fetch(f"{written} WHERE event ->> 'event_id' = $1", event_id):
            event = json.loads(body)
            _, fields = events.TYPES[event["type"]]
            for part in event["after"].get("reservations", [event["after"]]):
                assert set(part) == set(fields), event["type"]
            seen.add(event["type"])
    await connection.close()
    assert seen >= {"order.created", "order.confirmed", "reservation.created", "reservation.cancelled", "place.left"}
    known = known_keys()
    async with Redis.from_url(suite.engines["redis_url"]) as client:
        names = [name.decode() async for name in client.scan_iter(count=1_000)]
    assert [name for name in names if not known.fullmatch(name)] == []
