"""Usual designs of a line, each in its best form with one round trip per request, and batched where possible.

Every design numbers fans from 1; `join`, `position` and `admit` return the timing of a run.
"""

import functools
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg

from bench.baselines.service import open_pool, read_sql
from bench.harness.measurement import Trial
from bench.harness.pipes import Operation, Pipes, Timing, one_round_trip, prepare, run_calls
from onsale.local.engines import with_driver

PLACES_PER_COMMAND = 1000


class Design(Protocol):
    """A line that can be measured. `each` is how many fans one request joins or admits."""

    name: str

    async def fill(self, count: int) -> None: ...
    async def bytes_kept(self) -> int: ...
    async def join(self, count: int, *, each: int) -> Timing: ...
    async def position(self, count: int) -> Timing: ...
    async def admit(self, count: int, *, each: int) -> Timing: ...


def fan(n: int) -> str:
    """A fan's name, as long as a random one would be."""
    return f"fan-{n:018d}"


def portions(first: int, count: int, each: int) -> Iterator[range]:
    """Numbers from `first` on, in portions."""
    for n in range(first, first + count, each):
        yield range(n, min(n + each, first + count))


class InValkey(ABC):
    """What the designs on Valkey share: connections, and fans numbered in the order of joining."""

    def __init__(self, pipes: Pipes) -> None:
        self.pipes = pipes
        self.joined = self.admitted = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, trial: Trial, *, connections: int) -> AsyncIterator[Any]:
        pipes = await Pipes.open(trial.redis_url, connections)
        try:
            yield cls(pipes)
        finally:
            pipes.close()

    async def fill(self, count: int) -> None:
        await self.join(count, each=PLACES_PER_COMMAND)

    async def bytes_kept(self) -> int:
        """Bytes by its keys."""
        found: list[int] = []

        def memory_usage(key: str) -> Operation:
            [replied] = yield prepare(("MEMORY", "USAGE", key, "SAMPLES", 0))
            found.append(int(replied or 0))

        await self.pipes.run([memory_usage(key) for key in self.keys], fans=0)
        return sum(found)

    keys: tuple[str, ...] = ()

    @abstractmethod
    def joins(self, fans: range) -> Operation: ...

    @abstractmethod
    def position_operation(self, name: str) -> Operation: ...

    @abstractmethod
    def admits(self, count: int) -> Operation: ...

    async def join(self, count: int, *, each: int) -> Timing:
        operations = [self.joins(fans) for fans in portions(self.joined + 1, count, each)]
        self.joined += count
        return await self.pipes.run(operations, fans=count)

    async def position(self, count: int) -> Timing:
        waiting = random.Random(count).choices(range(self.admitted + 1, self.joined + 1), k=count)
        return await self.pipes.run([self.position_operation(fan(n)) for n in waiting], fans=count)

    async def admit(self, count: int, *, each: int) -> Timing:
        operations = [self.admits(len(fans)) for fans in portions(0, count, each)]
        self.admitted += count
        return await self.pipes.run(operations, fans=count)


class SortedSet(InValkey):
    """`ZADD` with the number as score; `ZRANK` is the position, `ZPOPMIN` admits."""

    name = "sorted set"
    keys = ("design:zset",)

    def joins(self, fans: range) -> Operation:
        flat = [part for n in fans for part in (n, fan(n))]
        return one_round_trip(("ZADD", self.keys[0], *flat))

    def position_operation(self, name: str) -> Operation:
        return one_round_trip(("ZRANK", self.keys[0], name))

    def admits(self, count: int) -> Operation:
        return one_round_trip(("ZPOPMIN", self.keys[0], count))


class ListAndHash(InValkey):
    """`RPUSH` keeps the order, a hash each fan's number; the position is the number less how many were popped."""

    name = "list + hash"
    keys = ("design:list", "design:numbers", "design:popped")
    ADMIT = """
    local fans = redis.call('LPOP', KEYS[1], ARGV[1])
    if not fans then return {} end
    redis.call('HDEL', KEYS[2], unpack(fans))
    redis.call('INCRBY', KEYS[3], #fans)
    return fans
    """

    def joins(self, fans: range) -> Operation:
        numbered = [part for n in fans for part in (fan(n), n)]
        return one_round_trip(("RPUSH", self.keys[0], *map(fan, fans)), ("HSET", self.keys[1], *numbered))

    def position_operation(self, name: str) -> Operation:
        return one_round_trip(("HGET", self.keys[1], name), ("GET", self.keys[2]))

    def admits(self, count: int) -> Operation:
        return one_round_trip(("EVAL", self.ADMIT, 3, *self.keys, count))


class PostgresQueue:
    """A table with an index over those who wait; `SKIP LOCKED` admits, the position is a difference of numbers."""

    name = "PostgreSQL, SKIP LOCKED"
    TABLE = read_sql("line_table")
    JOIN = "INSERT INTO textbook.line (holder) VALUES ($1) RETURNING join_seq"
    JOIN_MANY = "INSERT INTO textbook.line (holder) SELECT unnest($1::text[]) RETURNING join_seq"
    POSITION = "SELECT $1 - min(join_seq) + 1 FROM textbook.line WHERE admitted_at IS NULL"
    ADMIT = """
    UPDATE textbook.line SET admitted_at = now() WHERE join_seq IN (
        SELECT join_seq FROM textbook.line WHERE admitted_at IS NULL ORDER BY join_seq LIMIT $1 FOR UPDATE SKIP LOCKED
    ) RETURNING join_seq
    """

    def __init__(self, pool: Any, connections: int) -> None:
        self._pool, self._connections = pool, connections
        self._joined = self._admitted = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, trial: Trial, *, connections: int) -> AsyncIterator["PostgresQueue"]:
        async with open_pool(with_driver(trial.postgres_url)) as pool:
            await pool.execute(cls.TABLE)
            yield cls(pool, connections)

    async def fill(self, count: int) -> None:
        connection: asyncpg.Connection
        async with self._pool.acquire() as connection:
            await connection.copy_records_to_table(
                "line", schema_name="textbook", columns=["holder"],
                records=((fan(n),) for n in range(1, count + 1)), timeout=600,
            )  # fmt: skip
            await connection.execute("VACUUM ANALYZE textbook.line", timeout=600)
        self._joined = count

    async def bytes_kept(self) -> int:
        """Bytes on disk, indexes included."""
        return int(await self._pool.fetchval("SELECT pg_total_relation_size('textbook.line')"))

    async def join(self, count: int, *, each: int) -> Timing:
        fans = [[fan(n) for n in part] for part in portions(self._joined + 1, count, each)]
        self._joined += count
        if each == 1:
            return await self._run([(self.JOIN, only[0]) for only in fans], count)
        return await self._run([(self.JOIN_MANY, many) for many in fans], count)

    async def position(self, count: int) -> Timing:
        waiting = random.Random(count).choices(range(self._admitted + 1, self._joined + 1), k=count)
        return await self._run([(self.POSITION, n) for n in waiting], count)

    async def admit(self, count: int, *, each: int) -> Timing:
        self._admitted += count
        return await self._run([(self.ADMIT, len(part)) for part in portions(0, count, each)], count)

    async def _run(self, queries: Sequence[tuple[str, object]], fans: int) -> Timing:
        calls = (functools.partial(self._pool.fetch, query, value) for query, value in queries)
        return await run_calls(calls, connections=self._connections, fans=fans)
