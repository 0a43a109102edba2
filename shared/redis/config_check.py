"""Checks the configuration of every Redis or Valkey process: it must write to disk and never evict keys.

It is checked when a service starts, or as soon as Redis answers. A fault is logged, and stops the start in production.
"""

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import AuthenticationError, ResponseError

from shared.redis.client import REDIS_AWAY, Redis, replicas_of
from shared.redis.cluster import Cluster, address_of
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


class NodeReport(NamedTuple):
    """One process: its address, whether it takes writes, what INFO says, and its faults."""

    address: str
    is_primary: bool
    info: dict[str, Any]
    faults: list[str]


async def check_config(redis: Redis) -> ConfigReport:
    """Checks every process concurrently; an unreachable replica is skipped.

    Raises `RedisUnfit` if the server is not of the kind that the URL names, `ConnectionError` if no primary answers.
    """
    nodes, complete = await node_reports(redis)
    return ConfigReport([f"{node.address}: {fault}" for node in nodes for fault in node.faults], complete)


async def node_reports(redis: Redis) -> tuple[list[NodeReport], bool]:
    """Every process that answers, and whether all primaries are among them. Raises as `check_config`."""
    clustered = isinstance(redis, Cluster)
    try:
        primaries = await redis.slot_map.primaries() if clustered else [redis]
    except ResponseError as alone:
        raise RedisUnfit("Redis is not in a cluster; its URL begins with redis://.") from alone
    replicas = redis.slot_map.replicas() if clustered else await replicas_of(redis)
    answers = await asyncio.gather(
        *(_check_node(node, clustered=clustered, is_primary=True) for node in primaries),
        *(_check_node(node, clustered=clustered, is_primary=False) for node in replicas),
    )
    of_primaries = answers[: len(primaries)]
    if not any(isinstance(answer, NodeReport) for answer in of_primaries):
        raise next(answer for answer in of_primaries if isinstance(answer, Exception))
    complete = all(isinstance(answer, NodeReport) for answer in of_primaries)
    return [answer for answer in answers if isinstance(answer, NodeReport)], complete


async def _check_node(node: Redis, *, clustered: bool, is_primary: bool) -> NodeReport | Exception:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            info = await node.info()
            faults = await _faults(node, info, clustered=clustered)
    except AuthenticationError:
        raise
    except (*REDIS_AWAY, TimeoutError) as away:
        return away
    return NodeReport(host_port(address_of(node)), is_primary, info, faults)


async def _faults(node: Redis, info: dict[str, Any], *, clustered: bool) -> list[str]:
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
