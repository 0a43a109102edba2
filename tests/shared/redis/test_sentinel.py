"""A client behind real sentinels follows the primary through a failover."""

import asyncio

from redis.exceptions import ResponseError

from onsale.local.ports import HOST
from shared.redis.client import REDIS_AWAY, connect, identity
from shared.redis.config_check import check_config
from shared.redis.pubsub import listen
from shared.redis.slot_map import address_of
from tests.support.engines.engine_groups import PRIMARY, SentinelGroup
from tests.support.wait import wait_until


async def test_after_a_failover_the_same_client_writes_to_the_new_primary(sentinel_group: SentinelGroup) -> None:
    client = connect(sentinel_group.url)
    await client.set("kept", 1)
    before = await identity(client, "kept")
    assert await check_config(client) == ([], True)
    received: list[bytes] = []
    listening = asyncio.create_task(listen(client, "show:*", received.append))
    first, second = sentinel_group.redis_nodes
    assert address_of(client) == (HOST, first.port)
    await wait_until(lambda: failover_starts(sentinel_group))

    async def writes_to_second() -> bool:
        try:
            return await identity(client, "kept") != before and bool(await client.set("kept", 2))
        except REDIS_AWAY:
            return False

    await wait_until(writes_to_second)  # the first still believes for ten seconds that it is the primary
    assert first.role == "master"
    assert address_of(client) == (HOST, second.port)
    assert second.client.get("kept") == "2"
    await wait_until(lambda: second.client.publish("show:news", "x") and received)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await client.aclose()


def failover_starts(sentinel_group: SentinelGroup) -> bool:
    """Starts a failover; refused until the sentinel knows that its replica can take over."""
    try:
        return bool(sentinel_group.sentinels[0].execute("SENTINEL FAILOVER", PRIMARY))
    except ResponseError:
        return False
