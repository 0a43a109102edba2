"""The primary that a real sentinel names, before and after another takes its place."""

import asyncio

from shared.fitness import faults
from shared.redis import ENGINE_AWAY, connect, identity
from shared.shards import address_of
from tests.support.engine_groups import HOST, PRIMARY, Watched
from tests.support.wait import wait_until


async def test_after_a_failover_the_same_client_writes_to_another_engine(watched: Watched) -> None:
    client = connect(watched.url)
    await client.set("kept", 1)
    before = await identity(client, "kept")
    assert await faults(client) == []
    first, second = watched.engines
    assert address_of(client) == (HOST, first.port)
    watched.sentinels[0].ask("SENTINEL FAILOVER", PRIMARY)

    async def another() -> bool:
        try:
            return await identity(client, "kept") != before and bool(await client.set("kept", 2))
        except ENGINE_AWAY:
            return False

    await wait_until(another, timeout_s=20)
    assert address_of(client) == (HOST, second.port)
    assert second.client.get("kept") == "2"
    await asyncio.gather(client.aclose())
