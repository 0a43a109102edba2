"""A client has a bounded number of connections; a caller waits for a free one."""

import asyncio
from contextlib import aclosing

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.redis.client import connect
from tests.support.engines.engine_groups import SentinelGroup
from tests.support.wait import wait_until

CONNECTIONS_MAX = 4


async def call_500_times_at_once(url: str) -> None:
    async with aclosing(connect(url, connections_max=CONNECTIONS_MAX)) as client:
        before = len(await client.client_list())
        assert await asyncio.gather(*(client.echo(f"{n}") for n in range(500))) == [b"%d" % n for n in range(500)]
        assert len(await client.client_list()) - before < CONNECTIONS_MAX, "one connection was open before"


async def test_500_concurrent_calls_use_four_connections(redis_url: str) -> None:
    await call_500_times_at_once(redis_url)


async def test_500_concurrent_calls_use_four_connections_through_sentinels(sentinel_group: SentinelGroup) -> None:
    await call_500_times_at_once(sentinel_group.url)


async def test_a_reader_that_waits_while_the_server_becomes_a_replica_reads_on(redis_url: str) -> None:
    async with aclosing(connect(redis_url)) as client:
        reading = asyncio.create_task(client.xread({"log": "0"}, block=1500))
        await wait_until(lambda: _is_blocked(client), interval_s=0.05)
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert not await reading
        finally:
            await client.execute_command("REPLICAOF", "NO", "ONE")


async def _is_blocked(client: Redis) -> bool:
    return bool((await client.info("clients"))["blocked_clients"])


async def test_a_caller_without_a_free_connection_fails_within_the_timeout(redis_url: str) -> None:
    async with aclosing(connect(redis_url, connections_max=1, timeout_s=0.3)) as client:
        taken = await client.connection_pool.get_connection()
        with pytest.raises(RedisConnectionError, match="No connection"):
            await client.ping()
        await client.connection_pool.release(taken)
        assert await client.ping()
