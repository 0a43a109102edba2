"""A client has a bounded number of connections; whoever comes while all are in use waits for one."""

import asyncio
from contextlib import aclosing

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.redis.client import connect
from tests.support.engines.engine_groups import Watched

MOST = 4


async def crowd(url: str) -> None:
    async with aclosing(connect(url, connections_max=MOST)) as client:
        before = len(await client.client_list())
        assert await asyncio.gather(*(client.echo(f"{n}") for n in range(500))) == [b"%d" % n for n in range(500)]
        assert len(await client.client_list()) - before < MOST, "one was open already"


async def test_five_hundred_ask_at_once_over_four_connections(redis_url: str) -> None:
    await crowd(redis_url)


async def test_the_same_through_sentinels(watched: Watched) -> None:
    await crowd(watched.url)


async def test_who_waits_in_vain_is_told_so_within_the_time_out(redis_url: str) -> None:
    async with aclosing(connect(redis_url, connections_max=1, timeout_s=0.3)) as client:
        kept = await client.connection_pool.get_connection()
        with pytest.raises(RedisConnectionError, match="No connection"):
            await client.ping()
        await client.connection_pool.release(kept)
        assert await client.ping()
