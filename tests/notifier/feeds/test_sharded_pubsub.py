"""Subscribers to single events use sharded Pub/Sub; subscribers to all events use plain Pub/Sub."""

import asyncio

from redis.asyncio import Redis
from redis.crc import key_slot

from shared.contracts.frames import LINE_CHANNELS, line_channel, log_key, stock_channel
from shared.redis.snapshots import SnapshotPublisher
from tests.notifier.conftest import Start
from tests.notifier.fake_services import FakeServices
from tests.notifier.frames import EVENT, line_frame, order_frame, stock_frame
from tests.notifier.page import Page
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

CHANNELS = {line_channel(EVENT), stock_channel(EVENT)}


async def test_a_notifier_uses_sharded_channels_while_it_has_listeners(start: Start):
    notifier = await start(pubsub="sharded", window_ms=0)
    assert await notifier.channels() == set()
    client = await notifier.connect()
    assert await notifier.channels() == CHANNELS
    assert await notifier.redis.pubsub_channels("show:*") == []
    assert await notifier.publish(stock_frame(11, A=1, B=200, GA1=300)) == 1
    await wait_until(lambda: Page().apply(client.events).available["A"] == 1)
    order_client = await notifier.connect_order()
    await notifier.publish(order_frame(11, "confirmed"))
    await wait_until(lambda: order_client.last("order")["status"] == "confirmed")
    await client.close()

    async def unsubscribed() -> bool:
        return await notifier.channels() == set()

    await wait_until(unsubscribed)


async def test_a_lost_connection_to_a_shard_is_reopened(start: Start, services: FakeServices):
    notifier = await start(pubsub="sharded", window_ms=0)
    client = await notifier.connect(token=queue_token(1))
    subscriber = notifier.state.feeds.subscriber
    generation = subscriber.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await notifier.publish(line_frame(11, 9))
    await wait_until(lambda: subscriber.generation > generation and client.head_seq == 9)


async def test_subscribers_to_all_events_use_plain_pub_sub(redis: Redis):
    async with redis.pubsub() as subscription:
        await subscription.psubscribe(LINE_CHANNELS)
        assert await SnapshotPublisher(redis, "sharded").publish(line_channel(EVENT), line_frame(1, 2)) == 1
        async with asyncio.timeout(5):
            while (message := await subscription.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                pass
        assert b'"head_seq":2' in message["data"]


async def test_a_redis_without_cluster_uses_plain_pub_sub(redis: Redis):
    assert await SnapshotPublisher(redis, "auto").sharded() is False
    assert key_slot(line_channel(EVENT).encode()) == key_slot(log_key(line_channel(EVENT)).encode())
