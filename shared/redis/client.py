"""Redis or Valkey: opens connections, tells which server process answers, and runs Lua scripts as functions.

The URL selects a client of one server, of the primary that sentinels name, or of a cluster. All three are used alike,
as long as every script and transaction concerns one event. The primary is looked up for every new connection, and
checked again and again while it is used: a demoted one may go on answering for seconds before it knows, and no
connection stays with it.

A script is one file, whose header is its signature. A header line is `-- KEYS[i] name type meaning` or
`-- ARGV[i] name type meaning`; `[i+]` marks the last slot as a list. A call with wrong names is rejected before Redis
is called. Scripts run by `EVALSHA`; a server that lost one gets it again by `EVAL`, which is safe because every script
is idempotent.
"""

import asyncio
import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakSet

from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from shared.redis.cluster import REDIS_AWAY, Cluster
from shared.redis.url import RedisUrl
from shared.runtime import tracing
from shared.runtime.metrics import POOL_IN_USE, POOL_SIZE, POOL_TIMEOUTS
from shared.runtime.tracing import sale_log

# Asked several times a second: one round trip and three words instead of two and sixty lines to be parsed.
IDENTITY = """
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
return {string.match(server, 'run_id:(%w+)'), string.match(replication, 'master_replid:(%w+)'),
        string.match(replication, 'role:(%w+)')}
"""
ANSWERED_WITHIN_S = 2.0  # a command that waits in Redis waits for less
UNABLE = ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "LOADING", "UNBLOCKED")
SENTINEL_TIMEOUT_S, SENTINEL_POLL_S = 0.5, 0.25

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

_pools: dict[str, "WeakSet[MeasuredPool]"] = {}


class MeasuredPool(BlockingConnectionPool):  # type: ignore[misc]
    """While all connections are in use, a caller waits for one. `measure` names the service whose pool it is."""

    service = ""

    def measure(self, service: str) -> None:
        """Counts this pool among those of `service`; a cluster has one for each process."""
        self.service = service
        if service not in _pools:
            pools = _pools[service] = WeakSet()
            POOL_SIZE.labels(service, "redis").set_function(lambda: sum(pool.max_connections for pool in pools))
            POOL_IN_USE.labels(service, "redis").set_function(lambda: sum(pool.in_use for pool in pools))
            POOL_TIMEOUTS.labels(service, "redis")
        _pools[service].add(self)

    @property
    def in_use(self) -> int:
        return len(self._in_use_connections)

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().get_connection(*args, **options)
        except RedisConnectionError:
            if self.service and not self.can_get_connection():
                POOL_TIMEOUTS.labels(self.service, "redis").inc()
            raise


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


async def subscribed_channels(redis: Redis, channels: Sequence[str]) -> set[str]:
    """Those of these channels that somebody is subscribed to by name. On a cluster, whose processes know only their own
    subscribers, it is all.
    """
    if isinstance(redis, Cluster):
        return set(channels)
    return {channel.decode() for channel, subscribers in await redis.pubsub_numsub(*channels) if subscribers}


# -- the primary that sentinels name -----------------------------------------------------------------------------------


class _PrimaryPool(SentinelConnectionPool, MeasuredPool):  # type: ignore[misc]
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
        self._replicas += (found := [_impatient(self._where.at(address)) for address in known])
        return found

    async def aclose(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await super().aclose()
        await asyncio.gather(self.sentinel_manager.aclose(), *(replica.aclose() for replica in self._replicas))


def primary_by_sentinel(where: RedisUrl, **options: Any) -> Redis:
    """A client of the present primary; a silent sentinel is skipped after half a second."""
    watch = Sentinel([])
    watch.sentinels = [_impatient(where.sentinel_at(address)) for address in where.addresses]
    options_of_url = parse_url(where.at(where.addresses[0]))
    for option in ("host", "port", "connection_class"):
        options_of_url.pop(option, None)
    return Redis.from_pool(_PrimaryPool(where, watch, ssl=where.scheme == "rediss", **options_of_url, **options))


async def replicas_of(redis: Redis) -> list[Redis]:
    """A client of each replica that the sentinels know, closed with this one; none without sentinels."""
    pool = redis.connection_pool
    return await pool.replicas() if isinstance(pool, _PrimaryPool) else []


def _impatient(url: str) -> Redis:
    timeouts = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    return Redis.from_url(url, protocol=2, retry=Retry(NoBackoff(), 0), **timeouts)


# -- identity ----------------------------------------------------------------------------------------------------------


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


# -- scripts -----------------------------------------------------------------------------------------------------------

_SLOT = re.compile(r"^-- (KEYS|ARGV)\[(\d+)(\+?)\] (\w+) +(\w+) +(\S.*)$")
Value = str | bytes | int | float
Argument = Value | Iterable[Value]


@dataclass(frozen=True, slots=True)
class Slot:
    """One named input of a script."""

    name: str
    kind: str
    is_list: bool


def _slots(source: str, which: str, file: str) -> tuple[Slot, ...]:
    found = [m for line in source.splitlines() if (m := _SLOT.match(line)) and m[1] == which]
    if [int(m[2]) for m in found] != list(range(1, len(found) + 1)) or any(m[3] for m in found[:-1]):
        raise ValueError(f"{file}: the header must number its {which} from 1, and only the last may be a list")
    return tuple(Slot(m[4], m[5], bool(m[3])) for m in found)


class Script:
    """One Lua script, called with the names in its header: `await hold(redis, map=…, reservation_id=…)`."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.keys = _slots(source, "KEYS", name)
        self.arguments = _slots(source, "ARGV", name)
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._names = {slot.name for slot in (*self.keys, *self.arguments)}

    @classmethod
    def load(cls, package: str, *names: str, prelude: str = "") -> "Script":
        """From `<package>/lua/<name>.lua`: the last is the script, `prelude` and the others stand in front of it."""
        folder = importlib.resources.files(package).joinpath("lua")
        source = prelude + "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
        return cls(f"{package}:{names[-1]}", source)

    async def __call__(self, redis: Redis, /, **named: Argument) -> Any:
        keys, arguments = self.bind(named)
        with tracing.span(f"redis {self.name}"), sale_log.timed("sale.engine", script=self.name):
            try:
                return await redis.execute_command("EVALSHA", self.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return await redis.execute_command("EVAL", self.source, len(keys), *keys, *arguments)

    async def many(self, redis: Redis, calls: Sequence[Mapping[str, Argument]]) -> list[Any]:
        """Makes all calls in one round trip, for keys of one slot; each reply may be a `ResponseError`."""
        bound = [self.bind(call) for call in calls]
        many = sale_log.timed("sale.engine", script=self.name, calls=len(calls))
        with tracing.span(f"redis {self.name}", members=len(calls)), many:
            answers = await self._pipeline(redis, "EVALSHA", self.sha, bound)
        missing = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if missing:
            again = await self._pipeline(redis, "EVAL", self.source, [bound[i] for i in missing])
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
        return answers

    @staticmethod
    async def _pipeline(
        redis: Redis, command: str, script: str, bound: list[tuple[list[Value], list[Value]]]
    ) -> list[Any]:
        pipe = redis.pipeline(transaction=False)
        for keys, arguments in bound:
            pipe.execute_command(command, script, len(keys), *keys, *arguments)
        return list(await pipe.execute(raise_on_error=False))

    def bind(self, named: Mapping[str, Argument]) -> tuple[list[Value], list[Value]]:
        """KEYS and ARGV in the header's order; raises `TypeError` if the names are not exactly the header's."""
        if named.keys() != self._names:
            names = ", ".join(sorted(named.keys() ^ self._names))
            raise TypeError(f"{self.name}: missing or unknown: {names}")
        return self._flat(self.keys, named), self._flat(self.arguments, named)

    def _flat(self, slots: tuple[Slot, ...], named: Mapping[str, Argument]) -> list[Value]:
        flat: list[Value] = []
        for slot in slots:
            value = named[slot.name]
            if isinstance(value, str | bytes | int | float):
                if slot.is_list:
                    raise TypeError(f"{self.name}: {slot.name} is a list")
                flat.append(value)
            elif slot.is_list:
                flat.extend(value)
            else:
                raise TypeError(f"{self.name}: {slot.name} takes one {slot.kind}")
        return flat


def reply_status(reply: Any) -> str:
    """The status that a script returned, alone or first in a list; raises an error reply."""
    if isinstance(reply, ResponseError):
        raise reply
    first = reply[0] if isinstance(reply, list) else reply
    return first.decode() if isinstance(first, bytes) else str(first)
