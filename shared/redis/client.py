"""Connections to Redis or Valkey, and the question which engine process is answering.

A client of a standalone engine, of the primary that sentinels name, or of a cluster, by the URL: the same to whoever
uses it, as long as everything done in one step is done to one event.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from shared.redis.cluster import Cluster
from shared.redis.sentinel import primary_by_sentinel
from shared.redis.slot_map import REDIS_AWAY
from shared.redis.url import RedisUrl

UNABLE = ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "LOADING")

__all__ = [
    "REDIS_AWAY",
    "Redis",
    "RedisError",
    "RedisIdentity",
    "connect",
    "doubt",
    "identities",
    "identity",
    "near",
    "primaries",
]


def connect(url: str, *, timeout_s: float = 2.0, connections_max: int = 64, retries: int = 1) -> Redis:
    """A client with bounded waits; one immediate retry covers a connection that the engine closed while idle. Whoever
    comes while all connections are in use waits for one, at most `timeout_s`.

    Who subscribes wants no retries: a connection lost and found has missed what was shown in between. Raises
    `ValueError` if the URL cannot be meant.
    """
    where = RedisUrl.parse(url)
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "max_connections": connections_max,
        "timeout": timeout_s,  # for a connection
        "retry": Retry(NoBackoff(), retries),
        "retry_on_error": [RedisConnectionError],
    }
    if where.kind == "sentinel":
        return _able(primary_by_sentinel(where, **options))
    if where.kind == "cluster":
        return Cluster(where.addresses, lambda address: _client(where.at(address), options))
    return _client(url, options)


def _client(url: str, options: dict[str, Any]) -> Redis:
    return _able(Redis.from_pool(BlockingConnectionPool.from_url(url, **options)))


class RedisUnable(RedisConnectionError):  # type: ignore[misc]
    """The engine answers and cannot do what it was asked: it is full, a replica, or busy with itself."""


def _able(client: Redis) -> Redis:
    """The same client, to which an engine that is there and unable is an engine that is away."""
    pool = client.connection_pool
    pool.connection_class = _honest(pool.connection_class)
    return client


@cache
def _honest(kind: type[Connection]) -> type[Connection]:
    class Honest(kind):  # type: ignore[misc]
        """Says `ConnectionError` for all that makes an engine useless for now."""

        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*args, **options)
            except ResponseError as refused:
                if _is_unable(refused):
                    raise RedisUnable(str(refused)) from refused
                raise

        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except (RuntimeError, AttributeError) as closed:  # the loop's and the client's words for a reset in between
                await self.disconnect(nowait=True)
                raise RedisConnectionError("The connection was closed while it was written to.") from closed

    return Honest


def _is_unable(refused: ResponseError) -> bool:
    said = str(refused)
    known = isinstance(refused, OutOfMemoryError | ReadOnlyError) or said.partition(" ")[0] in UNABLE
    return known or any(f"-{word} " in said for word in UNABLE)  # of a script that older engines ran


async def near(redis: Redis, key: str) -> Redis:
    """A client of the one process that holds this key: whose clock it has, who it is. Raises `ConnectionError`."""
    return await redis.shards.near(key) if isinstance(redis, Cluster) else redis


def doubt(redis: Redis) -> None:
    """Somebody did not answer: a cluster is asked again who holds what."""
    if isinstance(redis, Cluster):
        redis.shards.doubt()


async def primaries(redis: Redis) -> list[Redis]:
    """A client of each process that takes writes. Raises `ConnectionError`."""
    return list(await redis.shards.primaries()) if isinstance(redis, Cluster) else [redis]


class RedisIdentity(NamedTuple):
    """Which process holds the data: changes on restart (`run_id`) and on failover (`replication_id`)."""

    run_id: str
    replication_id: str

    def text(self) -> str:
        return f"{self.run_id}/{self.replication_id}"


async def identity(redis: Redis, key: str) -> RedisIdentity:
    """Asks the process that holds this key who it is."""
    return await _identity(await near(redis, key))


async def identities(redis: Redis, keys: Iterable[str]) -> dict[str, str]:
    """Who holds each of these keys, each process asked once; a key whose process is away has no answer."""
    holders: dict[int, tuple[Redis, list[str]]] = {}
    for key in keys:
        with suppress(*REDIS_AWAY):
            node = await near(redis, key)
            holders.setdefault(id(node), (node, []))[1].append(key)
    told = await asyncio.gather(*(_identity(node) for node, _ in holders.values()), return_exceptions=True)
    answers: dict[str, str] = {}
    for who, (_, held) in zip(told, holders.values(), strict=True):
        if isinstance(who, RedisIdentity):
            answers.update(dict.fromkeys(held, who.text()))
        elif not isinstance(who, REDIS_AWAY):
            raise who
        else:
            doubt(redis)
    return answers


async def _identity(node: Redis) -> RedisIdentity:
    server = await node.info("server")
    replication = await node.info("replication")
    if replication["role"] != "master":
        await node.connection_pool.disconnect()  # sentinels are asked again
        raise RedisConnectionError("This engine is a replica by now.")
    return RedisIdentity(str(server["run_id"]), str(replication["master_replid"]))
