"""A Redis or Valkey cluster as one client: every command goes to the process that holds its key.

All keys of an event share a slot, so one process runs a script or a transaction, and a pipeline is split into one
pipeline per process. When a shard is unreachable, only its own events are affected.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.commands import AsyncCoreCommands
from redis.exceptions import AskError, MovedError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.redis.slot_map import REDIS_AWAY, RESHARDING, SlotMap, address, address_of
from shared.redis.url import Address

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
