"""Usual designs of selling stock, each in as few round trips as it allows, for any venue created in it."""

import functools
import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import redis.asyncio

from bench.baselines.service import open_pool, read_sql
from bench.harness.pipes import Operation, Pipes, Timing, prepare, run_calls
from bench.stock.our_stock import TICKETS, SaleResult, Venue

HOLD_TTL_S = 600


class InPostgres(ABC):
    """What the designs on PostgreSQL share: sections, holds, a pool. `hold` answers whether the fan got the tickets.

    Their holds end by a scan of the table that returns their tickets.
    """

    name: str
    schema: str
    OWN = "{0}.section, {0}.hold"
    TABLES = read_sql("stock_tables")
    INSERT_SECTIONS = "INSERT INTO {0}.section SELECT $1 || n, $3, $3 FROM generate_series(0, $2::int - 1) n"
    KEPT = "SELECT coalesce(sum(quantity), 0) FROM {0}.hold"
    END_ALL = read_sql("end_all_holds")
    LEFT = "SELECT sum(seats_remaining) FROM {0}.section"

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self._holds = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, postgres_url: str, _: str) -> AsyncIterator[Self]:
        async with open_pool(postgres_url) as pool:
            if not await pool.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", cls.schema):
                await pool.execute(cls.sql(cls.TABLES))
            yield cls(pool)

    @classmethod
    def sql(cls, statement: str) -> str:
        return statement.format(cls.schema, HOLD_TTL_S)

    async def create_stock(self, show: Venue) -> None:
        """Replaces the show before it."""
        await self.pool.execute(self.sql(f"TRUNCATE {self.OWN}"))
        await self.pool.execute(self.sql(self.INSERT_SECTIONS), f"{show.name}-", show.sections, show.each)
        await self.pool.execute(self.sql("ANALYZE {0}.section"))

    async def sell(self, show: Venue, section_numbers: Iterator[int], contenders: int) -> SaleResult:
        result = {True: 0, False: 0}

        async def one(section: int) -> None:
            self._holds += 1
            result[await self.hold(f"{show.name}-{section}", f"{show.name}:{self._holds:012d}")] += 1

        calls = (functools.partial(one, section) for section in section_numbers)
        timing = await run_calls(calls, connections=contenders, fans=0)
        return SaleResult(timing, result[True], result[False])

    @abstractmethod
    async def hold(self, section_id: str, hold_id: str) -> bool: ...

    async def holds_stored(self, show: Venue) -> int:
        return int(await self.pool.fetchval(self.sql(self.KEPT)))

    async def end_all(self, show: Venue) -> None:
        await self.pool.execute(self.sql(self.END_ALL))

    async def tickets_left(self, show: Venue) -> int:
        return int(await self.pool.fetchval(self.sql(self.LEFT)))


class ForUpdate(InPostgres):
    """Lock the section's row, read it, update it."""

    name, schema = "SELECT … FOR UPDATE", "for_update"
    REMAINING = "SELECT seats_remaining FROM {0}.section WHERE section_id = $1 FOR UPDATE"
    TAKE = f"""
    WITH taken AS (UPDATE {{0}}.section SET seats_remaining = $4::int - $2::int WHERE section_id = $1)
    INSERT INTO {{0}}.hold VALUES ($3, $1, $2::int, now() + interval '{HOLD_TTL_S} s')
    """

    async def hold(self, section_id: str, hold_id: str) -> bool:
        async with self.pool.acquire() as connection, connection.transaction():
            left = await connection.fetchval(self.sql(self.REMAINING), section_id)
            if left < TICKETS:
                return False
            await connection.execute(self.sql(self.TAKE), section_id, TICKETS, hold_id, left)
            return True


class ReadThenWrite(ForUpdate):
    """The same without the lock, to show that the check detects overselling."""

    name, schema = "read, then write (no guard)", "unguarded"
    REMAINING = "SELECT seats_remaining FROM {0}.section WHERE section_id = $1"


class HotCounter(InPostgres):
    """One statement: take if enough is left, and keep the hold."""

    name, schema = "counter row", "counter"
    TAKE = f"""
    WITH taken AS (UPDATE {{0}}.section SET seats_remaining = seats_remaining - $2::int
                   WHERE section_id = $1 AND seats_remaining >= $2::int RETURNING section_id)
    INSERT INTO {{0}}.hold SELECT $3, section_id, $2::int, now() + interval '{HOLD_TTL_S} s' FROM taken
    """

    async def hold(self, section_id: str, hold_id: str) -> bool:
        return bool(await self.pool.execute(self.sql(self.TAKE), section_id, TICKETS, hold_id) == "INSERT 0 1")


class UnitRows(InPostgres):
    """A row a ticket; free ones are picked with `SKIP LOCKED`, from a random one on, so that fans seldom meet."""

    name, schema = "unit rows, SKIP LOCKED", "units"
    OWN = InPostgres.OWN + ", {0}.unit"
    TABLES = (
        InPostgres.TABLES
        + """
    CREATE TABLE {0}.unit (section_id text, unit_id integer, hold_id text, PRIMARY KEY (section_id, unit_id))
        WITH (fillfactor = 50);
    CREATE INDEX unit_free ON {0}.unit (section_id, unit_id) WHERE hold_id IS NULL;
    """
    )
    UNITS = """
    INSERT INTO {0}.unit SELECT $1 || n, u, NULL FROM generate_series(0, $2::int - 1) n, generate_series(1, $3::int) u
    """
    TAKE = read_sql("take_units")
    END_ALL = """
    WITH ended AS (DELETE FROM {0}.hold RETURNING hold_id)
    UPDATE {0}.unit u SET hold_id = NULL FROM ended WHERE u.hold_id = ended.hold_id
    """
    KEPT = "SELECT count(*) FROM {0}.unit WHERE hold_id IS NOT NULL"
    LEFT = "SELECT count(*) FROM {0}.unit WHERE hold_id IS NULL"

    async def create_stock(self, show: Venue) -> None:
        self._each = show.each
        await super().create_stock(show)
        await self.pool.execute(self.sql(self.UNITS), f"{show.name}-", show.sections, show.each)
        await self.pool.execute(self.sql("ANALYZE {0}.unit"))

    async def hold(self, section_id: str, hold_id: str) -> bool:
        for first in (random.randrange(self._each), 0):
            if await self.pool.execute(self.sql(self.TAKE), section_id, TICKETS, hold_id, first) == "INSERT 0 1":
                return True
        return False


class AdvisorySum(InPostgres):
    """An advisory lock a section; what is left is its capacity less all live holds, added up anew."""

    name, schema = "advisory lock + sum", "summed"
    TABLES = InPostgres.TABLES + "CREATE INDEX hold_of ON {0}.hold (section_id) INCLUDE (quantity, held_until);"
    TAKE = f"""
    INSERT INTO {{0}}.hold SELECT $3, $1, $2::int, now() + interval '{HOLD_TTL_S} s' FROM {{0}}.section
    WHERE section_id = $1 AND capacity - $2::int >=
        (SELECT coalesce(sum(quantity), 0) FROM {{0}}.hold WHERE section_id = $1 AND held_until > now())
    """
    END_ALL = "DELETE FROM {0}.hold"
    LEFT = """
    SELECT sum(capacity) - (SELECT coalesce(sum(quantity), 0) FROM {0}.hold)
    FROM {0}.section
    """

    async def hold(self, section_id: str, hold_id: str) -> bool:
        async with self.pool.acquire() as connection:
            await connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({zlib.crc32(section_id.encode())})")
            done = await connection.execute(self.sql(self.TAKE), section_id, TICKETS, hold_id)
            await connection.execute("COMMIT")
            return bool(done == "INSERT 0 1")


class TtlKey:
    """The textbook's script: a counter, and a key that expires for each hold. Nothing is written to a database."""

    name = "Valkey script, TTL key"
    TAKE = """
    if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then return 0 end
    redis.call('DECRBY', KEYS[1], ARGV[1])
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
    return 1
    """

    def __init__(self, client: redis.asyncio.Redis, redis_url: str, sha: str) -> None:
        self._client, self._redis_url, self._sha = client, redis_url, sha
        self._holds = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, _: str, redis_url: str) -> AsyncIterator["TtlKey"]:
        async with redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as client:
            yield cls(client, redis_url, await client.script_load(cls.TAKE))

    async def create_stock(self, show: Venue) -> None:
        """Replaces the show before it."""
        for keys in batched([key async for key in self._client.scan_iter("ttl:*", count=10_000)]):
            await self._client.unlink(*keys)
        await self._client.mset({f"ttl:{show.name}:left:{n}": show.each for n in range(show.sections)})

    async def sell(self, show: Venue, section_numbers: Iterator[int], contenders: int) -> SaleResult:
        result, pipes = [0, 0], await Pipes.open(self._redis_url, contenders)

        def one(section: int) -> Operation:
            self._holds += 1
            keys = f"ttl:{show.name}:left:{section}", f"ttl:{show.name}:hold:{self._holds}"
            [outcome] = yield prepare(("EVALSHA", self._sha, 2, *keys, TICKETS, HOLD_TTL_S * 1000))
            result[outcome] += 1

        timing: Timing = await pipes.run((one(section) for section in section_numbers), fans=0)
        pipes.close()
        return SaleResult(timing, result[1], result[0])

    async def holds_stored(self, show: Venue) -> int:
        return TICKETS * len([key async for key in self._client.scan_iter(f"ttl:{show.name}:hold:*", count=10_000)])

    async def end_all(self, show: Venue) -> None:
        """The keys' time is over at once instead of in ten minutes."""
        for key in [key async for key in self._client.scan_iter(f"ttl:{show.name}:hold:*", count=10_000)]:
            await self._client.pexpire(key, 1)
        while await self.holds_stored(show):
            pass

    async def tickets_left(self, show: Venue) -> int:
        found = await self._client.mget([f"ttl:{show.name}:left:{n}" for n in range(show.sections)])
        return sum(int(left) for left in found)


def batched(keys: list[str], size: int = 5_000) -> Iterator[list[str]]:
    """The same keys, so many at a time."""
    return (keys[n : n + size] for n in range(0, len(keys), size))
