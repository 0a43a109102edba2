"""Live updates from a real Redis cluster: events are received from the shards they are in."""

from collections.abc import AsyncIterator

import pytest

from shared.redis.client import Redis, connect
from tests.notifier.conftest import EVENT, Start, line, order, stock
from tests.support.engines.engine_groups import Cluster
from tests.support.wait import wait_until


@pytest.fixture(name="redis")
async def redis_client(cluster: Cluster) -> AsyncIterator[Redis]:
    cluster.forget()
    client = connect(cluster.url)
    yield client
    await client.aclose()


async def test_a_notifier_gets_events_and_orders(start: Start, cluster: Cluster) -> None:
    notifier = await start(redis_url=cluster.url, window_ms=0)
    notifier.pubsub = "auto"
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    holder = cluster.primary_of(f"{{{EVENT}}}")

    async def in_its_shard() -> bool:
        return len(holder.execute("PUBSUB SHARDCHANNELS", f"*{EVENT}*")) == 2

    await wait_until(in_its_shard)
    await notifier.show(stock(11, A=1, B=200, GA1=300))
    await notifier.show(line(11, 9))
    await wait_until(lambda: client.last("line")["head_seq"] == 9)
    of_order = await notifier.listen_order(token=None)
    await wait_until(lambda: of_order.last("order"))
    await notifier.show(order(11, "confirmed"))
    await wait_until(lambda: of_order.last("order")["status"] == "confirmed")


async def test_a_lost_connection_to_one_of_them_is_made_good(start: Start, cluster: Cluster) -> None:
    notifier = await start(redis_url=cluster.url, window_ms=0)
    notifier.pubsub = "auto"
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    subscriber = notifier.state.feeds.subscriber
    generation = subscriber.generation
    cluster.primary_of(f"{{{EVENT}}}").execute("CLIENT KILL", "TYPE", "pubsub")
    await wait_until(lambda: subscriber.generation > generation)
    await notifier.show(line(12, 10))
    await wait_until(lambda: client.last("line")["head_seq"] == 10)
