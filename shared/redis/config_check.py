"""Checks the configuration of every Redis or Valkey process: it must write to disk and never evict keys.

It is checked when a service starts, or as soon as Redis answers. A fault is logged, and stops the start in production.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from redis.exceptions import AuthenticationError, ResponseError

from shared.redis.client import REDIS_AWAY, Redis
from shared.redis.cluster import Cluster
from shared.redis.sentinel import replicas_of
from shared.redis.slot_map import address_of
from shared.redis.url import RedisUnfit, host_port
from shared.runtime.logging import get_logger

log = get_logger("onsale.redis")
VERSION_MIN = (6, 2)
CHECK_TIMEOUT_S = 1.0  # shorter than the time limit of readiness


class RedisRequirements:
    """Checks the processes behind one client until all primaries have been checked once."""

    def __init__(self, redis: Redis, *, production: bool) -> None:
        self._redis, self._production, self._known = redis, production, False

    async def at_start(self) -> None:
        """Raises `RedisUnfit`. An unreachable Redis is checked by readiness later: fans can join without it."""
        try:
            await self._check_config()
        except AuthenticationError as rejected:
            raise RedisUnfit(f"Redis rejects the user or password: {rejected}") from rejected
        except REDIS_AWAY as away:
            log.warning("redis.unavailable_at_start", error=str(away))

    async def check(self) -> None:
        """For readiness: raises while Redis does not answer, or one process is unfit for production."""
        if not self._known:
            await self._check_config()
        await self._redis.ping()

    async def _check_config(self) -> None:
        report = await check_config(self._redis)
        if report.faults and self._production:
            raise RedisUnfit(f"Redis is unfit for production: {'; '.join(report.faults)}.")
        for fault in report.faults:
            log.warning("redis.unfit", fault=fault)
        self._known = report.complete


class ConfigReport(NamedTuple):
    """The faults, each with its address; whether every primary was checked."""

    faults: list[str]
    complete: bool


async def check_config(redis: Redis) -> ConfigReport:
    """Checks every process concurrently; an unreachable replica is skipped.

    Raises `RedisUnfit` if the server is not of the kind that the URL names, `ConnectionError` if no primary answers.
    """
    clustered = isinstance(redis, Cluster)
    try:
        primaries = await redis.slot_map.primaries() if clustered else [redis]
    except ResponseError as alone:
        raise RedisUnfit("Redis is not in a cluster; its URL begins with redis://.") from alone
    replicas = redis.slot_map.replicas() if clustered else await replicas_of(redis)
    answers = await asyncio.gather(*(_check_node(node, clustered=clustered) for node in (*primaries, *replicas)))
    of_primaries = answers[: len(primaries)]
    if not any(isinstance(answer, list) for answer in of_primaries):
        raise next(answer for answer in of_primaries if isinstance(answer, Exception))
    faults = [fault for answer in answers if isinstance(answer, list) for fault in answer]
    return ConfigReport(faults, all(isinstance(answer, list) for answer in of_primaries))


async def _check_node(node: Redis, *, clustered: bool) -> list[str] | Exception:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            faults = await _faults(node, clustered=clustered)
    except AuthenticationError:
        raise
    except (*REDIS_AWAY, TimeoutError) as away:
        return away
    return [f"{host_port(address_of(node))}: {fault}" for fault in faults]


async def _faults(node: Redis, *, clustered: bool) -> list[str]:
    info = await node.info()
    if info.get("cluster_enabled") and not clustered:
        raise RedisUnfit("Redis is in a cluster; its URL begins with redis+cluster://.")
    fsync = ""
    with suppress(ResponseError):  # some hosted services disable CONFIG
        fsync = (await node.config_get("appendfsync")).get(b"appendfsync", b"").decode()
    version = tuple(map(int, str(info["redis_version"]).split(".")[:2]))
    return [
        fault
        for fault, is_present in (
            ("older than 6.2", version < VERSION_MIN),
            ("appendonly is not yes", not info.get("aof_enabled")),
            ("appendfsync is no", fsync == "no"),
            ("maxmemory-policy is not noeviction", info.get("maxmemory_policy", "noeviction") != "noeviction"),
        )
        if is_present
    ]
