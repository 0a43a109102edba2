"""Faults of Valkey and PostgreSQL themselves: data lost or old, no memory, no disk, no connections, locks, restarts."""

import asyncio
import os
import shutil
import signal
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import asyncpg
import redis.asyncio

from onsale.local.engines import with_driver
from proof.drills.postgres.test_full_disk import END_CONNECTIONS, take_all_connections
from proof.swarm.faults.fault import Fault
from proof.swarm.site import Site

LOCKS = (
    "LOCK TABLE inventory.reservation IN EXCLUSIVE MODE", "LOCK TABLE inventory.seat IN EXCLUSIVE MODE",
    "LOCK TABLE queue.place IN EXCLUSIVE MODE", "LOCK TABLE queue.room IN EXCLUSIVE MODE",
    'LOCK TABLE orders."order" IN EXCLUSIVE MODE', "LOCK TABLE orders.outbox_batch IN EXCLUSIVE MODE",
)  # fmt: skip


class _OfValkey(Fault):
    words = ""

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return ["valkey"]

    @classmethod
    def what(cls, target: str) -> str:
        return f"Valkey {cls.words}"

    async def command(self, site: Site, *command: str) -> object:
        async with redis.asyncio.Redis.from_url(site.fleet.valkey.url, decode_responses=True) as client:
            return await client.execute_command(*command)


class Flushed(_OfValkey):
    words = "flushed"

    async def begin(self, site: Site) -> None:
        await self.command(site, "FLUSHALL")


class KeyDeleted(_OfValkey):
    words = "lost one key of the event"

    async def begin(self, site: Site) -> None:
        keys = await self.command(site, "KEYS", f"*{site.event_id}*")
        assert isinstance(keys, list)
        if keys:
            self.key = self.rng.choice(sorted(keys))
            site.say(f"key {self.key} deleted")
            await self.command(site, "DEL", self.key)


class BackInTime(_OfValkey):
    """Restarts on an older copy of its data."""

    words = "back in time"
    shortest_s = 1.0

    async def begin(self, site: Site) -> None:
        self._copy = site.ours / f"valkey-{self.rng.getrandbits(32):08x}"
        await asyncio.to_thread(self._copied, site)

    def _copied(self, site: Site) -> None:
        """A copy between two rewrites of the file; a file that vanishes meanwhile is tried again."""
        while True:
            try:
                return site.fleet.valkey.copy_to(self._copy)
            except shutil.Error:
                shutil.rmtree(self._copy)

    async def end(self, site: Site) -> None:
        await asyncio.to_thread(site.fleet.valkey.end, signal.SIGKILL)
        site.fleet.valkey.put_back(self._copy)
        await site.start_again("valkey")


class OutOfMemory(_OfValkey):
    words = "at its memory limit"

    async def begin(self, site: Site) -> None:
        await self.command(site, "CONFIG", "SET", "maxmemory", "1")

    async def end(self, site: Site) -> None:
        await self.command(site, "CONFIG", "SET", "maxmemory", "0")


class ReadOnly(_OfValkey):
    words = "read-only"

    async def begin(self, site: Site) -> None:
        await self.command(site, "REPLICAOF", "127.0.0.1", "1")

    async def end(self, site: Site) -> None:
        await self.command(site, "REPLICAOF", "NO", "ONE")


class _OfPostgres(Fault):
    words = ""

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return ["postgres"]

    @classmethod
    def what(cls, target: str) -> str:
        return f"PostgreSQL {cls.words}"


class ConnectionsTerminated(_OfPostgres):
    words = "ends every connection, again and again"

    async def begin(self, site: Site) -> None:
        self._repeating = asyncio.create_task(self._repeat(site))

    async def _repeat(self, site: Site) -> None:
        while True:
            await site.query(END_CONNECTIONS)
            await asyncio.sleep(self.rng.uniform(0.05, 1.0))

    async def end(self, site: Site) -> None:
        self._repeating.cancel()
        await asyncio.wait([self._repeating])


class NoConnectionLeft(_OfPostgres):
    words = "has no connection left"

    async def begin(self, site: Site) -> None:
        self._stack = AsyncExitStack()
        await take_all_connections(site.postgres_url, self._stack)

    async def end(self, site: Site) -> None:
        await self._stack.aclose()


class LockHeld(_OfPostgres):
    words = "waits for a lock on a table"
    longest_s = 7.0

    async def begin(self, site: Site) -> None:
        self._connection = await asyncpg.connect(with_driver(site.postgres_url))
        await self._connection.execute(f"BEGIN; {self.rng.choice(LOCKS)}")

    async def end(self, site: Site) -> None:
        await self._connection.close()


class PostgresRestarted(_OfPostgres):
    words = "restarted"

    async def begin(self, site: Site) -> None:
        await asyncio.to_thread(site.postgres.end, signal.SIGINT)

    async def end(self, site: Site) -> None:
        await site.start_postgres()


class PostgresKilled(PostgresRestarted):
    words = "killed (SIGKILL)"

    async def begin(self, site: Site) -> None:
        await asyncio.to_thread(site.postgres.lose)


class PostgresFrozen(_OfPostgres):
    words = "frozen (SIGSTOP)"
    longest_s = 9.0

    async def begin(self, site: Site) -> None:
        self._pids = site.postgres.freeze()

    async def end(self, site: Site) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)


class DiskFull(Fault):
    """The file system of PostgreSQL, Valkey and the provider's books has no block left."""

    needs = "mount"
    longest_s = 8.0

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return ["disk"]

    @classmethod
    def what(cls, target: str) -> str:
        return "disk of PostgreSQL and Valkey full"

    @classmethod
    def touches(cls, target: str) -> tuple[str, ...]:
        return ("postgres", "valkey", "sandbox")

    async def begin(self, site: Site) -> None:
        self._ballast = site.folder / "ballast"
        await asyncio.to_thread(_fill, self._ballast)

    async def end(self, site: Site) -> None:
        self._ballast.unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    """Writes until no block is free."""
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
