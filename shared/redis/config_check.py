"""Whether an engine keeps what it was told: every process of Redis or Valkey must write to disk and never evict.

Asked when a service starts, or as soon as the engine answers. What is missing is warned of, and refused in production.
"""

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple

from redis.exceptions import AuthenticationError, ResponseError

from shared.redis.client import REDIS_AWAY, Redis
from shared.redis.cluster import Cluster
from shared.redis.sentinel import replicas_of
from shared.redis.slot_map import address_of
from shared.redis.url import RedisUnfit, spelled
from shared.runtime.logging import data

log = logging.getLogger("onsale.engine")
VERSION_MIN = (6, 2)
LOOK_S = 1.0  # less than readiness waits


class RedisRequirements:
    """One client's engines, looked at once."""

    def __init__(self, redis: Redis, *, production: bool) -> None:
        self._redis, self._production, self._known = redis, production, False

    async def at_start(self) -> None:
        """Raises `RedisUnfit`. An engine that is away is looked at when readiness asks: joining goes on without it."""
        try:
            await self._look()
        except AuthenticationError as refused:
            raise RedisUnfit(f"Redis refuses us: {refused}") from refused
        except REDIS_AWAY as away:
            log.warning("engine.away_at_start", extra=data(error=str(away)))

    async def check(self) -> None:
        """For readiness: raises while no engine answers, or one is unfit for production."""
        if not self._known:
            await self._look()
        await self._redis.ping()

    async def _look(self) -> None:
        found = await look(self._redis)
        if found.faults and self._production:
            raise RedisUnfit(f"Redis is unfit for production: {'; '.join(found.faults)}.")
        for fault in found.faults:
            log.warning("engine.unfit", extra=data(fault=fault))
        self._known = found.whole


class Found(NamedTuple):
    """What is wrong, and where; whether every primary was looked at."""

    faults: list[str]
    whole: bool


async def look(redis: Redis) -> Found:
    """Looks at every process at the same time; a replica that is away is passed over. Raises `RedisUnfit` if this is
    not what the URL says, `ConnectionError` if no primary answers.
    """
    clustered = isinstance(redis, Cluster)
    try:
        primaries = await redis.shards.primaries() if clustered else [redis]
    except ResponseError as alone:
        raise RedisUnfit("Redis is not in a cluster; its URL begins with redis://.") from alone
    replicas = redis.shards.replicas() if clustered else await replicas_of(redis)
    told = await asyncio.gather(*(_looked_at(node, clustered=clustered) for node in (*primaries, *replicas)))
    of_primaries = told[: len(primaries)]
    if not any(isinstance(answer, list) for answer in of_primaries):
        raise next(answer for answer in of_primaries if isinstance(answer, Exception))
    faults = [fault for answer in told if isinstance(answer, list) for fault in answer]
    return Found(faults, all(isinstance(answer, list) for answer in of_primaries))


async def _looked_at(node: Redis, *, clustered: bool) -> list[str] | Exception:
    try:
        async with asyncio.timeout(LOOK_S):
            wrong = await _faults(node, clustered=clustered)
    except AuthenticationError:
        raise
    except (*REDIS_AWAY, TimeoutError) as away:
        return away
    return [f"{spelled(address_of(node))}: {fault}" for fault in wrong]


async def _faults(node: Redis, *, clustered: bool) -> list[str]:
    told = await node.info()
    if told.get("cluster_enabled") and not clustered:
        raise RedisUnfit("Redis is in a cluster; its URL begins with redis+cluster://.")
    fsync = ""
    with suppress(ResponseError):  # some hosters keep CONFIG to themselves
        fsync = (await node.config_get("appendfsync")).get(b"appendfsync", b"").decode()
    version = tuple(map(int, str(told["redis_version"]).split(".")[:2]))
    return [
        fault
        for fault, is_wrong in (
            ("older than 6.2", version < VERSION_MIN),
            ("appendonly is not yes", not told.get("aof_enabled")),
            ("appendfsync is no", fsync == "no"),
            ("maxmemory-policy is not noeviction", told.get("maxmemory_policy", "noeviction") != "noeviction"),
        )
        if is_wrong
    ]
