"""A notifier on a real Redis cluster receives each event's frames from the shard of that event."""

from collections.abc import AsyncIterator

import pytest

from shared.redis.client import Redis, connect
from tests.notifier.conftest import Start
from tests.notifier.frames import EVENT, line_frame, order_frame, stock_frame
from tests.support.engines.engine_groups import Cluster
from tests.support.wait import wait_until


@pytest.fixture(name="redis")
async def redis_client(cluster: Cluster) -> AsyncIterator[Redis]:
    cluster.flush_all()
    client = connect(cluster.url)
    yield client
    await client.aclose()


async def test_a_notifier_receives_the_frames_of_events_and_orders(start: Start, cluster: Cluster) -> None:
    notifier = await start(redis_url=cluster.url, window_ms=0)
    client = await notifier.connect()
    shard = cluster.primary_of(f"{{{EVENT}}}")

    async def subscribed_in_shard() -> bool:
        return len(shard.execute("PUBSUB SHARDCHANNELS", f"*{EVENT}*")) == 2

    await wait_until(subscribed_in_shard)
    await notifier.publish(stock_frame(11, A=1, B=200, GA1=300))
    await notifier.publish(line_frame(11, 9))
    await wait_until(lambda: client.head_seq == 9)
    order_client = await notifier.connect_order()

    async def hears_the_order() -> bool:
        await notifier.publish(order_frame(11, "confirmed"))  # nodes that have just met may not pass on the first one
        return order_client.last("order")["status"] == "confirmed"

    await wait_until(hears_the_order, interval_s=0.2)


async def test_a_lost_connection_to_one_node_is_reopened(start: Start, cluster: Cluster) -> None:
    notifier = await start(redis_url=cluster.url, window_ms=0)
    client = await notifier.connect()
    subscriber = notifier.state.feeds.subscriber
    generation = subscriber.generation
    cluster.primary_of(f"{{{EVENT}}}").execute("CLIENT KILL", "TYPE", "pubsub")
    await wait_until(lambda: subscriber.generation > generation)
    await notifier.publish(line_frame(12, 10))
    await wait_until(lambda: client.head_seq == 10)
