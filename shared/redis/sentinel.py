"""The primary that sentinels name: looked up for every new connection, and checked again and again while it is used.

A demoted primary may go on answering for seconds before it knows; no connection stays with it.
"""

import asyncio
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from shared.redis.pool import MeasuredPool
from shared.redis.slot_map import REDIS_AWAY
from shared.redis.url import RedisUrl

SENTINEL_TIMEOUT_S, SENTINEL_POLL_S = 0.5, 0.25


class _Pool(SentinelConnectionPool, MeasuredPool):  # type: ignore[misc]
    """Connections to the primary; closing it closes those to sentinels and replicas too."""

    def __init__(self, where: RedisUrl, watch: Sentinel, **options: Any) -> None:
        super().__init__(where.primary, watch, **options)
        self._where, self._replicas = where, list[Redis]()
        self._following: asyncio.Task[None] | None = None

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="sentinels")
        return await super().get_connection(*args, **options)

    async def _follow(self) -> None:
        """Cuts every connection to another process than the primary, also one opened during the change."""
        while True:
            await asyncio.sleep(SENTINEL_POLL_S)
            with suppress(*REDIS_AWAY):
                primary = await self.get_master_address()
                for connection in (*self._available_connections, *self._in_use_connections):
                    if connection.is_connected and (connection.host, connection.port) != primary:
                        await connection.disconnect(nowait=True)

    async def replicas(self) -> list[Redis]:
        known = await self.sentinel_manager.discover_replicas(self.service_name)
        self._replicas += (found := [_client(self._where.at(address)) for address in known])
        return found

    async def aclose(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await super().aclose()
        await asyncio.gather(self.sentinel_manager.aclose(), *(replica.aclose() for replica in self._replicas))


def primary_by_sentinel(where: RedisUrl, **options: Any) -> Redis:
    """A client of the present primary; a silent sentinel is skipped after half a second."""
    watch = Sentinel([])
    watch.sentinels = [_client(where.sentinel_at(address)) for address in where.addresses]
    options_of_url = parse_url(where.at(where.addresses[0]))
    for option in ("host", "port", "connection_class"):
        options_of_url.pop(option, None)
    return Redis.from_pool(_Pool(where, watch, ssl=where.scheme == "rediss", **options_of_url, **options))


async def replicas_of(redis: Redis) -> list[Redis]:
    """A client of each replica that the sentinels know, closed with this one; none without sentinels."""
    pool = redis.connection_pool
    return await pool.replicas() if isinstance(pool, _Pool) else []


def _client(url: str) -> Redis:
    timeouts = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    return Redis.from_url(url, protocol=2, retry=Retry(NoBackoff(), 0), **timeouts)
