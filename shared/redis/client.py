"""Opens connections to Redis or Valkey, and tells which server process answers.

The URL selects a client of one server, of the primary that sentinels name, or of a cluster. All three are used alike,
as long as every script and transaction concerns one event.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from redis.asyncio import Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from shared.redis.cluster import Cluster
from shared.redis.pool import MeasuredPool
from shared.redis.sentinel import primary_by_sentinel
from shared.redis.slot_map import REDIS_AWAY
from shared.redis.url import RedisUrl

# Asked several times a second: one round trip and three words instead of two and sixty lines to be parsed.
IDENTITY = """
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
return {string.match(server, 'run_id:(%w+)'), string.match(replication, 'master_replid:(%w+)'),
        string.match(replication, 'role:(%w+)')}
"""
ANSWERED_WITHIN_S = 2.0  # a command that waits in Redis waits for less
UNABLE = ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "LOADING", "UNBLOCKED")

__all__ = [
    "ANSWERED_WITHIN_S",
    "REDIS_AWAY",
    "Redis",
    "RedisError",
    "RedisIdentity",
    "connect",
    "identities",
    "identity",
    "invalidate_slot_map",
    "node_for_key",
    "primaries",
]


def connect(
    url: str, *, service: str = "", timeout_s: float = ANSWERED_WITHIN_S, connections_max: int = 64, retries: int = 1
) -> Redis:
    """A client with bounded waits; one immediate retry covers a connection that the server closed while idle.

    While all connections are in use, a caller waits for one, at most `timeout_s`. A subscriber uses `retries=0`: after
    a reconnect it has missed the messages in between. `service` names the pool's owner in the metrics. Raises
    `ValueError` for an invalid URL.
    """
    where = RedisUrl.parse(url)
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "max_connections": connections_max,
        "timeout": timeout_s,  # to get a connection from the pool
        "retry": Retry(NoBackoff(), retries),
        "retry_on_error": [RedisConnectionError],
    }
    if where.kind == "sentinel":
        return _measured(_report_unable(primary_by_sentinel(where, **options)), service)
    if where.kind == "cluster":
        return Cluster(where.addresses, lambda address: _measured(_client(where.at(address), options), service))
    return _measured(_client(url, options), service)


def _client(url: str, options: dict[str, Any]) -> Redis:
    return _report_unable(Redis.from_pool(MeasuredPool.from_url(url, **options)))


def _measured(client: Redis, service: str) -> Redis:
    if service:
        client.connection_pool.measure(service)
    return client


class RedisUnable(RedisConnectionError):  # type: ignore[misc]
    """The server answers but cannot serve: it is out of memory, a replica, loading or busy."""


def _report_unable(client: Redis) -> Redis:
    """The same client; a server that answers but cannot serve raises `ConnectionError` as an unreachable one does."""
    pool = client.connection_pool
    pool.connection_class = _reporting(pool.connection_class)
    return client


@cache
def _reporting(kind: type[Connection]) -> type[Connection]:
    class Reporting(kind):  # type: ignore[misc]
        """Raises `ConnectionError` for every state in which the server cannot serve."""

        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*args, **options)
            except ResponseError as error:
                if _is_unable(error):
                    raise RedisUnable(str(error)) from error
                raise

        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except (RuntimeError, AttributeError) as closed:  # raised by the loop and the client after a reset
                await self.disconnect(nowait=True)
                raise RedisConnectionError("The connection was closed during a write.") from closed

    return Reporting


def _is_unable(error: ResponseError) -> bool:
    message = str(error)
    known = isinstance(error, OutOfMemoryError | ReadOnlyError) or message.partition(" ")[0] in UNABLE
    return known or any(f"-{code} " in message for code in UNABLE)  # raised inside a script, by older servers


async def node_for_key(redis: Redis, key: str) -> Redis:
    """A client of the process that holds this key, for its clock and identity. Raises `ConnectionError`."""
    return await redis.slot_map.node_for_key(key) if isinstance(redis, Cluster) else redis


def invalidate_slot_map(redis: Redis) -> None:
    """After a process did not answer: a cluster's slot map is fetched again before its next use."""
    if isinstance(redis, Cluster):
        redis.slot_map.invalidate()


async def primaries(redis: Redis) -> list[Redis]:
    """A client of each process that accepts writes. Raises `ConnectionError`."""
    return list(await redis.slot_map.primaries()) if isinstance(redis, Cluster) else [redis]


class RedisIdentity(NamedTuple):
    """Identifies the process that holds the data: changes on restart (`run_id`) and failover (`replication_id`)."""

    run_id: str
    replication_id: str

    def text(self) -> str:
        return f"{self.run_id}/{self.replication_id}"


async def identity(redis: Redis, key: str) -> RedisIdentity:
    """The identity of the process that holds this key."""
    return await _identity(await node_for_key(redis, key))


async def identities(redis: Redis, keys: Iterable[str]) -> dict[str, str]:
    """The identity of the process that holds each key; a key whose process is unreachable is left out."""
    holders: dict[int, tuple[Redis, list[str]]] = {}
    for key in keys:
        with suppress(*REDIS_AWAY):
            node = await node_for_key(redis, key)
            holders.setdefault(id(node), (node, []))[1].append(key)
    found = await asyncio.gather(*(_identity(node) for node, _ in holders.values()), return_exceptions=True)
    answers: dict[str, str] = {}
    for who, (_, held) in zip(found, holders.values(), strict=True):
        if isinstance(who, RedisIdentity):
            answers.update(dict.fromkeys(held, who.text()))
        elif not isinstance(who, REDIS_AWAY):
            raise who
        else:
            invalidate_slot_map(redis)
    return answers


async def _identity(node: Redis) -> RedisIdentity:
    run_id, replication_id, role = (part.decode() for part in await node.execute_command("EVAL", IDENTITY, 0))
    if role != "master":
        await node.connection_pool.disconnect()  # the next connection asks the sentinels again
        raise RedisConnectionError("This server is a replica now.")
    return RedisIdentity(run_id, replication_id)
