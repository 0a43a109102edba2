"""The primary that a real sentinel names, before and after another takes its place."""

import asyncio

from redis.exceptions import ResponseError

from onsale.local.ports import HOST
from shared.redis.client import REDIS_AWAY, connect, identity
from shared.redis.config_check import check_config
from shared.redis.pubsub import listen
from shared.redis.slot_map import address_of
from tests.support.engines.engine_groups import PRIMARY, Watched
from tests.support.wait import wait_until


async def test_after_a_failover_the_same_client_writes_to_another_engine(watched: Watched) -> None:
    client = connect(watched.url)
    await client.set("kept", 1)
    before = await identity(client, "kept")
    assert await check_config(client) == ([], True)
    heard: list[bytes] = []
    listening = asyncio.create_task(listen(client, "show:*", heard.append))
    first, second = watched.engines
    assert address_of(client) == (HOST, first.port)
    await wait_until(lambda: accepted(watched), timeout_s=15)

    async def another() -> bool:
        try:
            return await identity(client, "kept") != before and bool(await client.set("kept", 2))
        except REDIS_AWAY:
            return False

    await wait_until(another)  # the first still thinks that it is a primary, and does so for ten seconds
    assert first.role == "master"
    assert address_of(client) == (HOST, second.port)
    assert second.client.get("kept") == "2"
    await wait_until(lambda: second.client.publish("show:news", "x") and heard)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await client.aclose()


def accepted(watched: Watched) -> bool:
    """A sentinel needs a moment to know that its replica is fit."""
    try:
        return bool(watched.sentinels[0].execute("SENTINEL FAILOVER", PRIMARY))
    except ResponseError:
        return False
