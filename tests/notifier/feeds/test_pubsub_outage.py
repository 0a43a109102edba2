"""A notifier subscribes to channels with listeners; while Pub/Sub is down, it requests frames from the services."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from services.notifier.feeds import subscriber
from services.orders.requests.requests import cancel_by_hand
from shared.contracts.frames import LINE_CHANNELS, line_channel, log_key, stock_channel
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis import pubsub as pubsub_module
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, REFERENCE, line_frame, order_frame, stock_frame
from tests.notifier.places import block
from tests.notifier.tokens import queue_token
from tests.support.engines.tcp_proxy import TcpProxy
from tests.support.running.services import TEST, Neighbours
from tests.support.wait import wait_until

CHANNELS = {line_channel(EVENT), stock_channel(EVENT)}


UNPUBLISHED = pytest.mark.usefixtures("unpublished")


@pytest.fixture(params=["plain", "sharded"])
def sharded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Frames go to shards, as on a cluster, or do not."""
    monkeypatch.setattr(SnapshotPublisher, "sharded", AsyncMock(return_value=request.param == "sharded"))
    return bool(request.param == "sharded")


async def test_a_channel_is_subscribed_to_only_while_it_has_a_listener(sharded: bool, start: Start):
    notifier = await start()
    assert await notifier.channels() == set()
    clients = [await notifier.connect(), await notifier.connect("?sections=A")]
    if sharded:
        assert await notifier.redis.pubsub_channels("show:*") == []
    for client in clients:
        assert await notifier.channels() == CHANNELS
        await client.close()
    await wait_until(lambda: notifier.has_channels(set()))
    assert await notifier.publish(line_frame(50)) == 0
    client, order_client = await notifier.connect(), await notifier.connect_order()
    assert await notifier.publish(line_frame(60, 60)) == 1
    await notifier.publish(order_frame(11, "confirmed"))
    await wait_until(lambda: client.head_seq == 60 and order_client.last("order")["status"] == "confirmed")


async def test_subscribers_to_all_events_use_plain_pub_sub(redis: Redis):
    async with redis.pubsub() as subscription:
        await subscription.psubscribe(LINE_CHANNELS)
        publisher = SnapshotPublisher(redis)
        publisher._sharded = True
        assert await publisher.publish(line_channel(EVENT), line_frame(1, 2)) == 1
        async with asyncio.timeout(5):
            while (message := await subscription.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                pass
        assert b'"head_seq":2' in message["data"]


async def test_a_redis_without_cluster_uses_plain_pub_sub(redis: Redis):
    assert await SnapshotPublisher(redis).sharded() is False
    assert key_slot(line_channel(EVENT).encode()) == key_slot(log_key(line_channel(EVENT)).encode())


@UNPUBLISHED
async def test_while_pubsub_is_down_streams_stay_open_and_frames_are_requested(
    notifier: Notifier, neighbours: Neighbours, redis_proxy: TcpProxy
):
    client = await notifier.connect()
    redis_proxy.set_mode("resets")
    await wait_until(lambda: client.last("line").get("degraded"))
    assert client.last("sections")["degraded"] is True
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted"]
    queue = await neighbours.real_queue.open()
    fans = [JoinRequest(holder=f"fan-{n}") for n in range(3)]
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=fans))
    await queue.gatekeeper.tick(EVENT)
    await wait_until(lambda: client.last("line")["tail_seq"] == 3)
    second = await notifier.listen(token=queue_token(2), last_event_id=client.last_id or "")
    await wait_until(lambda: second.last("line"))
    assert second.last("line")["degraded"] is True

    redis_proxy.set_mode("passes")
    await wait_until(lambda: "degraded" not in client.last("line"))
    assert "degraded" not in client.last("sections")
    await wait_until(lambda: second.last("notice"))
    assert [notice["kind"] for notice in client.all("notice")] == ["interrupted", "restored"]
    await wait_until(lambda: notifier.publish(line_frame(30, 30)))
    await wait_until(lambda: client.head_seq == 30)
    assert not client.closed


async def test_after_a_reconnect_the_frames_that_were_missed_are_requested(
    start: Start, neighbours: Neighbours, redis_proxy: TcpProxy, monkeypatch
):
    """An order's frame is published once, so a frame missed in a short outage is never repeated."""
    monkeypatch.setattr(subscriber, "RECONNECT_S", 0.01)
    notifier = await start(ask_interval_s=0.5)  # longer than the outage, which only the reconnect reveals
    client = await notifier.connect_order()
    generation = notifier.state.feeds.subscriber.generation
    redis_proxy.set_mode("resets")
    orders = await neighbours.real_orders.open()
    order = await orders.store.read(REFERENCE)
    assert order is not None
    await cancel_by_hand(orders.store, order, TEST)
    await orders.worker.settle(REFERENCE)
    redis_proxy.set_mode("passes")
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation)
    await wait_until(lambda: client.last("order")["status"] == "cancelled")


@UNPUBLISHED
async def test_the_frames_of_a_stale_channel_are_requested(start: Start, neighbours: Neighbours):
    notifier = await start(channel_stale_after_s=0.3)
    order_client, client = await notifier.connect_order(), await notifier.listen()
    await wait_until(lambda: client.last("line") and client.last("line").get("degraded"))
    await block(await neighbours.real_inventory.open(), "A-1-2", "A-1-3", "A-1-4")
    await wait_until(lambda: client.last("sections")["sections"][0]["available_seats"] == 1)
    await notifier.publish(line_frame(30, 30))
    await notifier.publish(stock_frame(30, A=2))
    await wait_until(lambda: "degraded" not in client.last("line"))
    assert not order_client.all("notice"), "the frames of an order are not repeated"


async def test_an_unreadable_frame_is_ignored(notifier: Notifier):
    client = await notifier.connect()
    await notifier.redis.publish(line_channel(EVENT), b"\xff{")
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.head_seq == 6)


@UNPUBLISHED
async def test_a_stream_without_a_first_snapshot_is_rejected_with_a_retry_delay(start: Start, neighbours: Neighbours):
    notifier = await start(first_snapshot_timeout_s=0.2)
    neighbours.queue.away = True
    client = await notifier.listen()
    await wait_until(lambda: client.closed)
    assert (client.status, [event.name for event in client.events], len(client.retries)) == (200, ["turned_away"], 1)
    neighbours.queue.away = False

    async def is_answered() -> object:
        again = await notifier.listen()
        await wait_until(lambda: again.closed or again.last("sections"))
        return again.last("sections")

    await wait_until(is_answered)


async def test_a_process_that_never_reached_pubsub_is_not_ready(start: Start, redis_proxy: TcpProxy):
    notifier = await start()
    feed_subscriber = notifier.state.feeds.subscriber
    await feed_subscriber.check()
    redis_proxy.set_mode("resets")
    await wait_until(lambda: not feed_subscriber.connected)
    await feed_subscriber.check()
    feed_subscriber.generation = 0
    with pytest.raises(ConnectionError):
        await feed_subscriber.check()


async def test_a_redis_connection_that_answers_no_ping_counts_as_lost(
    notifier: Notifier, redis_proxy: TcpProxy, monkeypatch
):
    await notifier.redis.config_resetstat()
    await notifier.connect()
    monkeypatch.setattr(pubsub_module, "ANSWER_WITHIN_S", 0.15)
    await notifier.publish(line_frame(11, 6))  # wakes the reader, which then uses the new interval
    generation = notifier.state.feeds.subscriber.generation

    async def pinged() -> bool:
        stats = await notifier.redis.info("commandstats")
        return int(stats.get("cmdstat_ping", {}).get("calls", 0)) >= 3

    await wait_until(pinged)
    assert notifier.state.feeds.subscriber.generation == generation, "a quiet connection that answers pings is kept"
    redis_proxy.set_mode("swallows")
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)


async def test_a_lost_subscription_to_a_channel_with_a_listener_is_restored(notifier: Notifier):
    await notifier.connect()
    assert notifier.state.feeds.subscriber._connection is not None
    await notifier.state.feeds.subscriber._connection.unsubscribe(*CHANNELS)
    await wait_until(lambda: notifier.has_channels(CHANNELS))


async def test_a_new_stream_is_marked_degraded_at_once_while_pubsub_is_down(notifier: Notifier, redis_proxy: TcpProxy):
    redis_proxy.set_mode("resets")
    await wait_until(lambda: not notifier.state.feeds.subscriber.connected)
    client = await notifier.connect()
    assert [data["degraded"] for data in (*client.all("line"), *client.all("sections"))] == [True, True]


@pytest.mark.usefixtures("sharded")
async def test_a_connection_that_is_lost_and_restored_at_once_counts_as_a_new_one(start: Start):
    notifier = await start()
    client = await notifier.connect()
    generation = notifier.state.feeds.subscriber.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await notifier.publish(line_frame(11, 9))
    await wait_until(lambda: notifier.state.feeds.subscriber.generation > generation and client.head_seq == 9)
