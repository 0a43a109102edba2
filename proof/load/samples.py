"""What is sampled while a suite sells: memory, descriptors (besides the fans' connections), threads and log of each
process, connections, tables and dead rows of PostgreSQL, memory, keys and clients of Redis.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import asyncpg
import psutil
import redis.asyncio

from onsale.local.engines import with_driver
from proof.drills.fleet import Fleet
from proof.load.flatness import Bound
from shared.routes import SERVICES, Service

MB, SMALL_TABLE = 1 << 20, 10_000
TABLES = """
    SELECT schemaname || '.' || relname AS name, n_live_tup AS live, n_dead_tup AS dead,
        pg_total_relation_size(relid) AS bytes
    FROM pg_stat_user_tables WHERE schemaname = ANY ($1)"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
FLAT = {  # the last part of a series' name: how much it may grow. Pools open their connections in the first minutes.
    "memory MB": Bound(0.08, 12), "descriptors": Bound(0.25, 64), "threads": Bound(0, 2),
    "postgres connections": Bound(0.1, 6), "redis clients": Bound(0.1, 8), "log bytes a request": Bound(0.15, 100),
    "dead share": Bound(0, 0.25),  # a vacuum comes when a fifth of a table is dead
}  # fmt: skip
PER_SALE = {  # what grows with purchases: how much of it a purchase may cost
    "table KB": 40.0, "redis KB": 6.0, "redis keys": 12.0, "rows": 90.0,
}  # fmt: skip


class Samples:
    """Series by name, and the two readings of what grows with sales."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._began_s = fleet, time.monotonic()
        self._processes = {name: psutil.Process(fleet.programs[name].process.pid) for name in SERVICES}
        self._log = dict.fromkeys(SERVICES, 0)
        self._answers = 0
        self.flat: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.grown: dict[str, list[float]] = defaultdict(list)

    async def open(self) -> None:
        self._postgres: Any = await asyncpg.connect(with_driver(self._fleet.postgres_url))
        self._redis = redis.asyncio.Redis.from_url(self._fleet.redis_url)

    async def close(self) -> None:
        await self._postgres.close()
        await self._redis.aclose()

    async def take(self, answers: int) -> None:
        """One sample; `answers` have been given so far."""
        at_s = time.monotonic() - self._began_s
        for name, value in [*self._of_processes(answers - self._answers), *await self._of_engines()]:
            self.flat[name].append((at_s, value))
        self._answers = answers

    def _of_processes(self, answers: int) -> Iterator[tuple[str, float]]:
        for name, process in self._processes.items():
            yield f"{name}: memory MB", process.memory_full_info().pss / MB
            yield f"{name}: descriptors", process.num_fds() - self._connections_of_fans(name)
            yield f"{name}: threads", process.num_threads()
            size = self._fleet.programs[name].log_path.stat().st_size
            if answers:
                yield f"{name}: log bytes a request", (size - self._log[name]) / answers
            self._log[name] = size

    def _connections_of_fans(self, name: Service) -> int:
        """They are as many as fans wait for an answer at a time, and are kept for a minute."""
        open_ones = self._processes[name].net_connections("tcp4")
        return sum(each.laddr.port == self._fleet.ports[name][0] and each.status == "ESTABLISHED" for each in open_ones)

    async def _of_engines(self) -> list[tuple[str, float]]:
        info, tables = await self._redis.info(), await self._tables()
        self.grown["redis KB"].append(info["used_memory"] / 1024)
        self.grown["redis keys"].append(await self._redis.dbsize())
        self.grown["table KB"].append(sum(row["bytes"] for row in tables) / 1024)
        self.grown["rows"].append(sum(row["live"] for row in tables))
        return [
            ("postgres connections", await self._postgres.fetchval(CONNECTIONS)),
            ("redis clients", info["connected_clients"]),
            *((f"{row['name']}: dead share", row["dead"] / (row["live"] + SMALL_TABLE)) for row in tables),
        ]

    async def _tables(self) -> list[Any]:
        return list(await self._postgres.fetch(TABLES, ["queue", "inventory", "orders", "console"]))
