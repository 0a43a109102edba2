"""The line on a Redis cluster: all keys of each script are in one slot."""

from collections.abc import AsyncIterator

import pytest

from shared.redis.client import Redis, connect
from tests.queue.conftest import EVENT, Queue
from tests.support.engines.engine_groups import Cluster


@pytest.fixture
def redis_url(cluster: Cluster) -> str:
    cluster.flush_all()
    return cluster.url


@pytest.fixture(name="redis")
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


async def test_joins_calls_claims_and_a_rebuild_run_on_a_cluster(queue: Queue) -> None:
    await queue.open(rate_per_s=10, burst=2)
    assert [joined.join_seq for joined in await queue.join_fans(5)] == [1, 2, 3, 4, 5]
    await queue.tick()
    await queue.heartbeat(1, 2, 3)
    assert await queue.status((1, "fan-1"), (5, "fan-5")) == ["ready", "waiting"]
    [claimed] = await queue.claim((1, "fan-1"))
    assert claimed.word == "admitted"
    assert await queue.leave((2, "fan-2")) == ["left"]
    await queue.state.gatekeeper.raise_counters()
    await queue.state.recovery.rebuild(EVENT, force=True)
    assert [joined.join_seq for joined in await queue.join("late")] == [6]
    assert (await queue.claim((1, "fan-1")))[0].admission == claimed.admission
    await queue.state.recovery.watch()
