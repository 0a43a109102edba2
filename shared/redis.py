"""Connections to Redis or Valkey, and the question which engine process is answering."""

from typing import NamedTuple

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

ENGINE_AWAY = (RedisConnectionError, RedisTimeoutError, OSError)

__all__ = ["ENGINE_AWAY", "EngineIdentity", "Redis", "RedisError", "connect", "identity"]


def connect(url: str, *, timeout_s: float = 2.0, connections_max: int = 64, retries: int = 1) -> Redis:
    """A client with bounded waits; one immediate retry covers a connection that the engine closed while idle.

    Who subscribes wants no retries: a connection lost and found has missed what was shown in between.
    """
    return Redis.from_url(
        url,
        protocol=2,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        max_connections=connections_max,
        retry=Retry(NoBackoff(), retries),
        retry_on_error=[RedisConnectionError],
    )


class EngineIdentity(NamedTuple):
    """Which process holds the data: changes on restart (`run_id`) and on failover (`replication_id`)."""

    run_id: str
    replication_id: str

    def text(self) -> str:
        return f"{self.run_id}/{self.replication_id}"


async def identity(redis: Redis) -> EngineIdentity:
    """Asks the engine who it is."""
    server = await redis.info("server")
    replication = await redis.info("replication")
    return EngineIdentity(str(server["run_id"]), str(replication["master_replid"]))
