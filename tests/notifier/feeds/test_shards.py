"""Sharded Pub/Sub: subscribers to single events use it, subscribers to all events use plain Pub/Sub."""

import asyncio

from redis.asyncio import Redis
from redis.crc import key_slot

from shared.contracts.frames import LINE_CHANNELS, line_channel, log_key
from shared.redis.snapshots import SnapshotPublisher
from tests.notifier.conftest import EVENT, FakeServices, Start, fan, line, order, stock
from tests.notifier.page import Page
from tests.support.wait import wait_until

CHANNELS = {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}


async def test_a_notifier_listens_in_shards_while_somebody_listens_to_it(start: Start):
    notifier = await start(pubsub="sharded", window_ms=0)
    assert await notifier.channels() == set()
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert await notifier.channels() == CHANNELS
    assert await notifier.redis.pubsub_channels("show:*") == []
    assert await notifier.show(stock(11, A=1, B=200, GA1=300)) == 1
    await wait_until(lambda: Page().apply(client.events).available["A"] == 1)
    of_order = await notifier.listen_order(token=None)
    await wait_until(lambda: of_order.last("order"))
    await notifier.show(order(11, "confirmed"))
    await wait_until(lambda: of_order.last("order")["status"] == "confirmed")
    await client.close()

    async def silent() -> bool:
        return await notifier.channels() == set()

    await wait_until(silent)


async def test_a_lost_connection_to_a_shard_is_made_good(start: Start, services: FakeServices):
    notifier = await start(pubsub="sharded", window_ms=0)
    client = await notifier.listen(token=fan(1))
    await wait_until(lambda: client.last("sections"))
    subscriber = notifier.state.feeds.subscriber
    generation = subscriber.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await notifier.show(line(11, 9))
    await wait_until(lambda: subscriber.generation > generation and client.last("line")["head_seq"] == 9)


async def test_subscribers_to_all_events_use_plain_pub_sub(redis: Redis):
    async with redis.pubsub() as everything:
        await everything.psubscribe(LINE_CHANNELS)
        assert await SnapshotPublisher(redis, "sharded").publish(line_channel(EVENT), line(1, 2)) == 1
        async with asyncio.timeout(5):
            while (message := await everything.get_message(ignore_subscribe_messages=True, timeout=1)) is None:
                pass
        assert b'"head_seq":2' in message["data"]


async def test_an_engine_that_is_no_cluster_is_used_the_plain_way(redis: Redis):
    assert await SnapshotPublisher(redis, "auto").sharded() is False
    assert key_slot(line_channel(EVENT).encode()) == key_slot(log_key(line_channel(EVENT)).encode())
