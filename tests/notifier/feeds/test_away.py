"""Only channels with listeners are subscribed to; while Pub/Sub is away, frames are requested from the services."""

import asyncio

import pytest

from services.notifier.feeds import subscriber
from shared.redis import pubsub
from tests.notifier.conftest import EVENT, FakeServices, Notifier, RedisProxy, Start, fan, line, order, stock
from tests.support.wait import wait_until

CHANNELS = {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}


async def test_channels_are_subscribed_to_while_somebody_listens_and_not_after(notifier: Notifier):
    assert await notifier.channels() == set()
    clients = [await notifier.listen(), await notifier.listen("?sections=A")]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    assert await notifier.channels() == CHANNELS
    for client in clients:
        assert await notifier.channels() == CHANNELS
        await client.close()

    async def silent() -> bool:
        return await notifier.channels() == set()

    await wait_until(silent)
    assert await notifier.show(line(50)) == 0
    again = await notifier.listen()
    await wait_until(lambda: again.last("sections"))
    assert await notifier.channels() == CHANNELS


async def test_while_pubsub_is_away_streams_stay_open_and_frames_are_requested(
    notifier: Notifier, services: FakeServices, redis_proxy: RedisProxy
):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await redis_proxy.disconnect()
    await wait_until(lambda: client.last("line").get("degraded"))
    assert client.last("sections")["degraded"] is True
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted"]
    services.line = line(20, 20)
    await wait_until(lambda: client.last("line")["head_seq"] == 20)
    late = await notifier.listen(token=fan(2), last_event_id=client.last_id or "")
    await wait_until(lambda: late.last("line"))
    assert late.last("line")["degraded"] is True

    await redis_proxy.restore()
    await wait_until(lambda: "degraded" not in client.last("line"))
    assert "degraded" not in client.last("sections")
    await wait_until(lambda: late.last("notice"))
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted", "restored"]

    async def event() -> bool:
        return await notifier.show(line(30, 30)) == 1

    await wait_until(event)
    await wait_until(lambda: client.last("line")["head_seq"] == 30)
    assert not client.closed


async def test_frames_published_during_a_lost_connection_are_requested(
    start: Start, services: FakeServices, redis_proxy: RedisProxy, monkeypatch
):
    """An order's frame is published once: nobody repeats one that came during a short break."""
    monkeypatch.setattr(subscriber, "RECONNECT_S", 0.01)
    notifier = await start(ask_interval_s=0.5)  # a break too short to be noticed otherwise
    client = await notifier.listen_order()
    await wait_until(lambda: client.last("order"))
    generation = notifier.state.feeds.subscriber.generation
    await redis_proxy.disconnect()
    services.orders["ORDER12345"] = order(11, "confirmed")
    await redis_proxy.restore()
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation)
    await wait_until(lambda: client.last("order") == {"reference": "ORDER12345", "status": "confirmed"})


async def test_frames_of_a_silent_channel_are_requested(start: Start, services: FakeServices):
    notifier = await start(channel_stale_after_s=0.3)
    client = await notifier.listen()
    await wait_until(lambda: client.last("line") and client.last("line").get("degraded"))
    services.stock = stock(20, A=1)
    await wait_until(lambda: client.last("sections")["sections"][0]["available_seats"] == 1)
    await notifier.show(line(30, 30))
    await notifier.show(stock(30, A=2))
    await wait_until(lambda: "degraded" not in client.last("line"))


async def test_unreadable_frames_do_no_harm(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await notifier.redis.publish(f"show:{{{EVENT}}}:line", b"\xff{")
    await notifier.show(line(11, 6))
    await wait_until(lambda: client.last("line")["head_seq"] == 6)


async def test_a_stream_without_a_first_snapshot_is_rejected_with_retry(start: Start, services: FakeServices):
    notifier = await start(first_snapshot_timeout_s=0.2)
    services.away = True
    client = await notifier.listen()
    await wait_until(lambda: client.closed)
    assert (client.status, [event.name for event in client.events], len(client.retries)) == (200, ["turned_away"], 1)
    waiting = asyncio.create_task(notifier.listen())
    services.away = False
    client = await waiting
    await wait_until(lambda: client.last("sections"))


async def test_a_process_that_never_reached_pubsub_is_not_ready(start: Start, redis_proxy: RedisProxy):
    notifier = await start()
    following = notifier.state.feeds.subscriber
    await following.check()
    await redis_proxy.disconnect()
    await wait_until(lambda: not following.connected)
    await following.check()
    following.generation = 0
    with pytest.raises(ConnectionError):
        await following.check()


async def test_a_silent_redis_connection_counts_as_away(notifier: Notifier, redis_proxy: RedisProxy, monkeypatch):
    await notifier.redis.config_resetstat()
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    for name, quick_s in {"READ_S": 0.02, "SILENT_PING_S": 0.05, "SILENT_MAX_S": 0.3}.items():
        monkeypatch.setattr(pubsub, name, quick_s)
    await notifier.show(line(11, 6))  # the reader now looks up as often as that
    generation = notifier.state.feeds.subscriber.generation

    async def pinged() -> bool:
        stats = await notifier.redis.info("commandstats")
        return int(stats.get("cmdstat_ping", {}).get("calls", 0)) >= 3

    await wait_until(pinged)
    assert notifier.state.feeds.subscriber.generation == generation, "silence alone is no reason"
    redis_proxy.silent = True
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)


async def test_a_listener_who_comes_while_the_last_leaves_is_subscribed(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert notifier.state.feeds.subscriber._connection is not None
    await notifier.state.feeds.subscriber._connection.unsubscribe(*CHANNELS)

    async def back() -> bool:
        return await notifier.channels() == CHANNELS

    await wait_until(back)


async def test_a_newcomer_learns_at_once_that_pubsub_is_away(notifier: Notifier, redis_proxy: RedisProxy):
    await redis_proxy.disconnect()
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert [data["degraded"] for data in (*client.all("line"), *client.all("sections"))] == [True, True]


async def test_a_connection_lost_and_found_in_one_breath_is_noticed(notifier: Notifier):
    client = await notifier.listen_order()
    await wait_until(lambda: client.last("order"))
    generation = notifier.state.feeds.subscriber.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation)
