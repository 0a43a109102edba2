"""A Redis or Valkey cluster as one client: every command goes to the process that holds its key.

All keys of an event share a slot, so one process runs a script or a transaction, and a pipeline is split into one
pipeline per process. When a shard is unreachable, only its own events are affected.

Maps the slots of a Redis or Valkey cluster to its processes, with one client per process.

The map is refreshed, at most ten times a second, when a process redirects a command or does not answer. All known
primaries are asked at once, so that a frozen one delays nobody.
"""

import asyncio
import bisect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.commands import AsyncCoreCommands
from redis.crc import key_slot
from redis.exceptions import AskError, AuthenticationError, ClusterDownError, MovedError, RedisError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.concurrency.background import stop
from shared.concurrency.coalescing import SingleFlight
from shared.redis.url import Address

REDIS_AWAY = (RedisConnectionError, RedisTimeoutError, OSError)
RESHARDING = (ClusterDownError, TryAgainError)
REFRESH_INTERVAL_S = 0.1


class SlotMap:
    """The map of a cluster, as one of its processes last reported it."""

    def __init__(self, seeds: Sequence[Address], client_at: Callable[[Address], Redis]) -> None:
        self._seeds, self._client_at = seeds, client_at
        self._clients: dict[Address, Redis] = {}
        self._lasts: list[int] = []
        self._ranges: list[tuple[int, Address]] = []
        self._replicas: set[Address] = set()
        self._moved: dict[int, Address] = {}
        self._fetches: SingleFlight[None] = SingleFlight()
        self._refreshed_s = float("-inf")
        self._stale = True

    async def node_for_key(self, key: str | bytes) -> Redis:
        """The client of the process that holds this key. Raises `ConnectionError` if none is known."""
        if self._stale:
            await self._refresh()
        slot = key_slot(key.encode() if isinstance(key, str) else key)
        if slot in self._moved:
            return self.client(self._moved[slot])
        at = bisect.bisect_left(self._lasts, slot)
        if at == len(self._ranges) or slot < self._ranges[at][0]:
            self._stale = True
            raise RedisConnectionError("No process of the cluster holds this slot.")
        return self.client(self._ranges[at][1])

    async def primaries(self) -> list[Redis]:
        """A client of every primary, in no order."""
        if self._stale:
            await self._refresh()
        found = [self.client(address) for address in {address for _, address in self._ranges}]
        random.shuffle(found)
        return found

    def replicas(self) -> list[Redis]:
        """A client of every replica on the map."""
        return [self.client(address) for address in self._replicas]

    def invalidate(self) -> None:
        """Marks the map as out of date: it is refreshed before its next use."""
        self._stale = True

    def follow_move(self, moved: MovedError, by: Redis) -> Redis:
        """The client of the process that a slot has moved to, as its former process reports it."""
        self._stale = True
        self._moved[moved.slot_id] = address((moved.host, moved.port), address_of(by))
        return self.client(self._moved[moved.slot_id])

    def client(self, address: Address) -> Redis:
        """The client of a process, created at its first use."""
        if address not in self._clients:
            self._clients[address] = self._client_at(address)
        return self._clients[address]

    async def aclose(self) -> None:
        await self._fetches.close()
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients))

    async def _refresh(self) -> None:
        if asyncio.get_running_loop().time() - self._refreshed_s < REFRESH_INTERVAL_S:
            return
        await self._fetches.run("slots", self._fetch)

    async def _fetch(self) -> None:
        """Asks primaries and seeds first, replicas if none of those answers."""
        known, errors = {address for _, address in self._ranges}, list[Exception]()
        for addresses in ({*known, *self._seeds}, self._replicas - known):
            answer = await self._first_answer(addresses, errors)
            if answer is not None:
                await self._apply(*answer)
                return
        raise RedisConnectionError(f"No process of the cluster answers: {errors[0]}") from errors[0]

    async def _first_answer(self, addresses: Iterable[Address], errors: list[Exception]) -> tuple[Address, Any] | None:
        """The first map received; `None` if no process answers, with the reasons in `errors`."""
        tasks = [asyncio.create_task(self._slots(address)) for address in addresses]
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except AuthenticationError:
                    raise  # every process would reject us
                except (*REDIS_AWAY, *RESHARDING) as away:
                    errors.append(away)
            return None
        finally:
            await stop(tasks)

    async def _slots(self, address: Address) -> tuple[Address, Any]:
        return address, await self.client(address).execute_command("CLUSTER SLOTS")

    async def _apply(self, reporter: Address, slots: Any) -> None:
        """Replaces the map by the one that `reporter` sent; closes the clients of processes that left."""
        rows = sorted((row[0], row[1], [address(node, reporter) for node in row[2:]]) for row in slots)
        self._moved = {}
        self._lasts = [last for _, last, _ in rows]
        self._ranges = [(first, nodes[0]) for first, _, nodes in rows]
        self._replicas = {replica for _, _, nodes in rows for replica in nodes[1:]}
        self._refreshed_s, self._stale = asyncio.get_running_loop().time(), not rows
        on_map = {*self._seeds, *(node for _, _, nodes in rows for node in nodes)}
        gone = [self._clients.pop(address) for address in self._clients.keys() - on_map]
        await asyncio.gather(*(client.aclose() for client in gone), return_exceptions=True)


def address(node: Sequence[Any], reporter: Address) -> Address:
    """The address of a node; one that does not know its own host has the host of the reporter."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (reporter[0] if host in (None, "", "?") else str(host)), int(node[1])


def address_of(client: Redis) -> Address:
    """The address that a client connects to; with sentinels, the last known one of the primary."""
    pool = client.connection_pool
    host, port = getattr(pool, "master_address", None) or (
        pool.connection_kwargs.get("host", "localhost"),
        pool.connection_kwargs.get("port", 6379),
    )
    return str(host), int(port)


HOPS_MAX = 5
POLL_S = 0.05
# The position of the first key in each command that the suite sends; the server rejects keys of several slots.
ANYWHERE = frozenset({"PING", "TIME", "INFO", "CONFIG GET", "COMMAND INFO"})
KEY_FIRST = """
    BITCOUNT DEL EXISTS EXPIRE GET GETBIT GETDEL GETEX HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSCAN HSET
    INCR INCRBY LLEN LRANGE MGET PERSIST PEXPIRE PEXPIREAT PTTL PUBLISH SADD SCARD SET SETBIT SETEX SISMEMBER SMEMBERS
    SPUBLISH SREM STRLEN TTL TYPE UNLINK XADD XDEL XLEN XRANGE XREVRANGE XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZMSCORE
    ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZSCORE
"""
_KEY_FIRST = frozenset(KEY_FIRST.split())
KEY_THIRD = frozenset({"EVAL", "EVALSHA"})
Command = tuple[tuple[Any, ...], dict[str, Any]]


class Cluster(AsyncCoreCommands):  # type: ignore[misc]
    """The commands of `Redis`, spread over the primaries of a cluster."""

    def __init__(self, seeds: Sequence[Address], client_at: Callable[[Address], Redis]) -> None:
        self.slot_map = SlotMap(seeds, client_at)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Sends one command to the process that holds its key, and follows redirections."""
        key = _key(args)
        if key is None:
            return await self._execute_anywhere(args, options)
        node: Redis | None = await self.slot_map.node_for_key(key)
        for _ in range(HOPS_MAX):
            assert node is not None
            try:
                return await node.execute_command(*args, **options)
            except MovedError as moved:
                node = self.slot_map.follow_move(moved, node)
            except AskError as redirect:
                target = self.slot_map.client(address((redirect.host, redirect.port), address_of(node)))
                return await _asking(target, args, options)
            except RESHARDING as moving:
                self.slot_map.invalidate()
                raise RedisConnectionError("The cluster is resharding.") from moving
            except REDIS_AWAY:
                node = await self._successor_of(node, key)
                if node is None:
                    raise
        raise RedisConnectionError("A command was redirected too often within the cluster.")

    async def _successor_of(self, lost: Redis, key: str | bytes) -> Redis | None:
        """The process that holds the key now instead of one that does not answer; `None` if it is still that one."""
        self.slot_map.invalidate()
        node = await self.slot_map.node_for_key(key)
        if node is not lost:
            return node
        self.slot_map.invalidate()
        return None

    async def _execute_anywhere(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        away: Exception = RedisConnectionError("The cluster has no primary.")
        for node in await self.slot_map.primaries():
            try:
                return await node.execute_command(*args, **options)
            except REDIS_AWAY as silent:
                away = silent
        self.slot_map.invalidate()
        raise away

    def pipeline(self, transaction: bool = True) -> "Pipeline":
        return Pipeline(self, transaction=transaction)

    async def dbsize(self) -> int:
        """The number of keys of all primaries together. Raises `ConnectionError` if one does not answer."""
        return sum(await asyncio.gather(*(node.dbsize() for node in await self.slot_map.primaries())))

    async def aclose(self) -> None:
        await self.slot_map.aclose()


class Pipeline(AsyncCoreCommands):  # type: ignore[misc]
    """Commands for several processes, in one round trip to each; a transaction is for one slot."""

    def __init__(self, cluster: Cluster, *, transaction: bool) -> None:
        self._cluster, self._transaction = cluster, transaction
        self._commands: list[Command] = []

    def execute_command(self, *args: Any, **options: Any) -> "Pipeline":
        if _key(args) is None:
            raise RedisError(f"{args[0]} has no key: a cluster's pipeline cannot route it.")
        self._commands.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The replies in the commands' order. An error reply is raised, or returned among them."""
        commands, self._commands = self._commands, []
        answers = await self._spread(commands)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors and raise_on_error:
            raise errors[0]
        return answers

    async def _spread(self, commands: Sequence[Command]) -> list[Any]:
        answers: list[Any] = [None] * len(commands)
        parts: dict[int, tuple[Redis, list[int]]] = {}
        for i, (args, _) in enumerate(commands):
            node = await self._cluster.slot_map.node_for_key(_key(args))
            parts.setdefault(id(node), (node, []))[1].append(i)

        async def run(node: Redis, indexes: list[int]) -> None:
            replies = await self._at(node, [commands[i] for i in indexes])
            for i, answer in zip(indexes, replies, strict=True):
                answers[i] = answer

        outcomes = await asyncio.gather(
            *(run(node, indexes) for node, indexes in parts.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        return answers

    async def _at(self, node: Redis, commands: Sequence[Command]) -> list[Any]:
        """The commands of one process; those whose slot has moved are sent to its new process, in order."""
        pipe, shards = node.pipeline(transaction=self._transaction), self._cluster.slot_map
        for args, options in commands:
            pipe.execute_command(*args, **options)
        try:
            answers = list(await pipe.execute(raise_on_error=False))
        except (*REDIS_AWAY, AskError, *RESHARDING) as away:
            if isinstance(away, MovedError):
                shards.follow_move(away, node)
            else:
                shards.invalidate()
            if await shards.node_for_key(_key(commands[0][0])) is node:
                shards.invalidate()
                raise RedisConnectionError("A shard of the cluster is unreachable.") from away
            return await self._spread(commands)
        for i, answer in enumerate(answers):
            if isinstance(answer, AskError):
                answers[i] = await self._cluster.execute_command(*commands[i][0], **commands[i][1])
            elif isinstance(answer, RESHARDING):
                shards.invalidate()
                raise RedisConnectionError("The cluster is resharding.") from answer
        return answers


async def _asking(node: Redis, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Sends a command to the process that a slot is being moved to; this key has been moved already."""
    pipe = node.pipeline(transaction=False)
    pipe.execute_command("ASKING")
    pipe.execute_command(*args, **options)
    return (await pipe.execute())[1]


def _key(args: Sequence[Any]) -> Any:
    """The key by which a command is routed; `None` if any process can answer it.

    Raises `RedisError` for a command that is not in the tables above or lacks its key: any one process would answer for
    a part of the data only.
    """
    command = str(args[0]).upper()
    if command in ANYWHERE:
        return None
    if command in _KEY_FIRST and len(args) > 1:
        return args[1]
    if command in KEY_THIRD and len(args) > 3 and int(args[2]) > 0:
        return args[3]
    if command == "XREAD" and "STREAMS" in args[:-1]:
        return args[args.index("STREAMS") + 1]
    raise RedisError(f"{command} has no key by which a cluster could route it.")
