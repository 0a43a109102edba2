"""A Redis or Valkey cluster as one client: every command goes to the process that holds its key.

All keys of an event share a slot, so a script or a transaction is one process's business, and a pipeline is one
pipeline for each process it concerns. A shard that is away is away for its own events only.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.commands import AsyncCoreCommands
from redis.exceptions import AskError, MovedError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.redis.slot_map import ON_ITS_WAY, REDIS_AWAY, Shards, address, address_of
from shared.redis.url import Address

HOPS_MAX = 5
POLL_S = 0.05
# Where each command that the suite sends has its first key; the engine itself refuses keys of several slots.
ANYWHERE = frozenset({"PING", "TIME", "INFO", "CONFIG GET", "COMMAND INFO"})
KEY_FIRST = """
    BITCOUNT DEL EXISTS EXPIRE GET GETBIT GETDEL GETEX HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET INCR
    INCRBY LLEN LRANGE MGET PERSIST PEXPIRE PEXPIREAT PTTL PUBLISH SADD SCARD SET SETBIT SETEX SISMEMBER SMEMBERS
    SPUBLISH SREM STRLEN TTL TYPE UNLINK XADD XDEL XLEN XRANGE XREVRANGE XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZMSCORE
    ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZSCORE
"""
_KEY_FIRST = frozenset(KEY_FIRST.split())
KEY_THIRD = frozenset({"EVAL", "EVALSHA"})
Command = tuple[tuple[Any, ...], dict[str, Any]]


class Cluster(AsyncCoreCommands):  # type: ignore[misc]
    """The commands of `Redis`, spread over the primaries of a cluster."""

    def __init__(self, seeds: Sequence[Address], client_at: Callable[[Address], Redis]) -> None:
        self.shards = Shards(seeds, client_at)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command, wherever its key is now; sent once more if that turns out to be elsewhere."""
        key = _key(args)
        if key is None:
            return await self._anywhere(args, options)
        node: Redis | None = await self.shards.near(key)
        for _ in range(HOPS_MAX):
            assert node is not None
            try:
                return await node.execute_command(*args, **options)
            except MovedError as moved:
                node = self.shards.moved(moved, node)
            except AskError as asked:
                there = self.shards.client(address((asked.host, asked.port), address_of(node)))
                return await _asking(there, args, options)
            except ON_ITS_WAY as moving:
                self.shards.doubt()
                raise RedisConnectionError("The cluster is not whole.") from moving
            except REDIS_AWAY:
                node = await self._instead_of(node, key)
                if node is None:
                    raise
        raise RedisConnectionError("A command was sent from one process of the cluster to the other.")

    async def _instead_of(self, lost: Redis, key: str | bytes) -> Redis | None:
        """Who holds the key instead of a process that does not answer, if anybody does by now."""
        self.shards.doubt()
        node = await self.shards.near(key)
        if node is not lost:
            return node
        self.shards.doubt()
        return None

    async def _anywhere(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        away: Exception = RedisConnectionError("The cluster has no primary.")
        for node in await self.shards.primaries():
            try:
                return await node.execute_command(*args, **options)
            except REDIS_AWAY as silent:
                away = silent
        self.shards.doubt()
        raise away

    def pipeline(self, transaction: bool = True) -> "Pipeline":
        return Pipeline(self, transaction=transaction)

    async def dbsize(self) -> int:
        """How many keys all primaries hold together. Raises `ConnectionError` if one of them does not answer."""
        return sum(await asyncio.gather(*(node.dbsize() for node in await self.shards.primaries())))

    async def aclose(self) -> None:
        await self.shards.aclose()


class Pipeline(AsyncCoreCommands):  # type: ignore[misc]
    """Commands for several processes in one round trip to each; a transaction is for one slot."""

    def __init__(self, cluster: Cluster, *, transaction: bool) -> None:
        self._cluster, self._transaction = cluster, transaction
        self._commands: list[Command] = []

    def execute_command(self, *args: Any, **options: Any) -> "Pipeline":
        if _key(args) is None:
            raise RedisError(f"{args[0]} concerns no key: a cluster's pipeline cannot carry it.")
        self._commands.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers in the commands' order. What an engine refused is raised, or stands among them."""
        commands, self._commands = self._commands, []
        answers = await self._spread(commands)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        if refused and raise_on_error:
            raise refused[0]
        return answers

    async def _spread(self, commands: Sequence[Command]) -> list[Any]:
        answers: list[Any] = [None] * len(commands)
        parts: dict[int, tuple[Redis, list[int]]] = {}
        for i, (args, _) in enumerate(commands):
            node = await self._cluster.shards.near(_key(args))
            parts.setdefault(id(node), (node, []))[1].append(i)

        async def do(node: Redis, some: list[int]) -> None:
            told = await self._at(node, [commands[i] for i in some])
            for i, answer in zip(some, told, strict=True):
                answers[i] = answer

        outcomes = await asyncio.gather(*(do(node, some) for node, some in parts.values()), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        return answers

    async def _at(self, node: Redis, commands: Sequence[Command]) -> list[Any]:
        """One process's part; what turns out to be elsewhere by now is done there, in its order."""
        pipe, shards = node.pipeline(transaction=self._transaction), self._cluster.shards
        for args, options in commands:
            pipe.execute_command(*args, **options)
        try:
            answers = list(await pipe.execute(raise_on_error=False))
        except (*REDIS_AWAY, AskError, *ON_ITS_WAY) as away:
            if isinstance(away, MovedError):
                shards.moved(away, node)
            else:
                shards.doubt()
            if await shards.near(_key(commands[0][0])) is node:
                shards.doubt()
                raise RedisConnectionError("A part of the cluster is away.") from away
            return await self._spread(commands)
        for i, answer in enumerate(answers):
            if isinstance(answer, AskError):
                answers[i] = await self._cluster.execute_command(*commands[i][0], **commands[i][1])
            elif isinstance(answer, ON_ITS_WAY):
                shards.doubt()
                raise RedisConnectionError("The cluster is not whole.") from answer
        return answers


async def _asking(node: Redis, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The slot is being moved, and this key already was."""
    pipe = node.pipeline(transaction=False)
    pipe.execute_command("ASKING")
    pipe.execute_command(*args, **options)
    return (await pipe.execute())[1]


def _key(args: Sequence[Any]) -> Any:
    """The key that says which process a command belongs to; None if any will do.

    Raises `RedisError` for a command that is not in the tables above or lacks its key: the process it would be sent to
    answers for a part of the data only.
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
    raise RedisError(f"{command} names no key by which a cluster could route it.")
