"""The testbed: one PostgreSQL and one Valkey with everything forced to disk, and a fresh database for each trial.

Only one side runs at a time. A trial begins with an empty Valkey and a checkpoint, so that no side inherits the other's
unfinished work.
"""

import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import redis.asyncio

from onsale.local.engines import Engines, start_databases, with_driver
from onsale.local.ports import HOST, free_port
from onsale.local.process import Child
from shared.routes import SERVICES
from tests.support.wait import wait_until

READY_S = 30.0
POLL_S = 0.05


@dataclass
class Testbed:
    """The databases, and the folder of logs and locks."""

    __test__ = False  # pytest: this is no test class

    data_dir: Path
    engines: Engines
    pids: dict[str, int] = field(default_factory=dict)
    template: str = "template1"
    _trial_numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def trial(self) -> AsyncIterator["Trial"]:
        """An empty Valkey and a fresh database, dropped afterwards."""
        name = f"turn_{next(self._trial_numbers)}"
        await self._sql(f"CREATE DATABASE {name} TEMPLATE {self.template}", "CHECKPOINT")
        server, _ = self.engines.postgres_url.rsplit("/", 1)
        try:
            async with AsyncExitStack() as servers:
                trial = Trial(self, f"{server}/{name}", self.engines.redis_url, servers)
                await trial.flush_redis()
                yield trial
        finally:
            await self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    async def settings(self) -> dict[str, str]:
        """How PostgreSQL and Valkey keep data, as they answer; the same for both sides."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
                 "shared_buffers", "max_connections")  # fmt: skip
        connection = await asyncpg.connect(with_driver(self.engines.postgres_url))
        found = {f"PostgreSQL {name}": str(await connection.fetchval(f"SHOW {name}")) for name in names}
        await connection.close()
        client = redis.asyncio.Redis.from_url(self.engines.redis_url, decode_responses=True)
        server = await client.info("server")
        found["Valkey version"] = server.get("valkey_version") or f"Redis {server['redis_version']}"
        for name in ("appendonly", "appendfsync"):
            found[f"Valkey {name}"] = (await client.config_get(name))[name]
        await client.aclose()
        return found

    async def _sql(self, *statements: str) -> None:
        connection = await asyncpg.connect(with_driver(self.engines.postgres_url))
        for statement in statements:
            await connection.execute(statement)
        await connection.close()


@dataclass(frozen=True)
class Trial:
    """One run of one side. `postgres_url` names SQLAlchemy's driver; servers started here stop with the trial.
    `environments` are those of the servers.
    """

    testbed: Testbed
    postgres_url: str
    redis_url: str
    _servers: AsyncExitStack
    pids: dict[str, int] = field(default_factory=dict)
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def serve(
        self, name: str, command: Sequence[str], port: int, environment: Mapping[str, str], *, ready: str = "/readyz"
    ) -> None:
        """Starts a server in a process and waits until it answers 200 to `ready` on `port`."""
        child = Child.start(
            [sys.executable, "-P", "-m", *command],
            name=name,
            lock_path=self.testbed.data_dir / "engines" / f"{name}.lock",
            log_path=self.testbed.data_dir / "log" / f"{name}.log",
            stop_signal="TERM",
            env={**environment_without_ours(), "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        )
        self._servers.push_async_callback(child.stop)
        self.pids[name], self.environments[name] = child._supervisor.pid, environment
        await until_ready(child, port, ready)

    @asynccontextmanager
    async def servers_within(self) -> AsyncIterator["Trial"]:
        """The same trial for servers that stop before it ends."""
        async with AsyncExitStack() as servers:
            yield Trial(self.testbed, self.postgres_url, self.redis_url, servers)

    async def serve_textbook(self, module: str, *, processes: int = 1, **environment: str) -> int:
        """Starts uvicorn with a baseline; its port."""
        port = free_port()
        options = f"--workers {processes} --factory --host {HOST} --port {port} --loop uvloop --http httptools".split()
        # the default kills a worker that is busy for 5 s
        options += ["--timeout-worker-healthcheck", str(round(READY_S))]
        options += ["--no-access-log", "--no-server-header", "--log-level", "warning", "--backlog", "4096"]
        engines = {"BENCH_POSTGRES_URL": with_driver(self.postgres_url), "BENCH_REDIS_URL": self.redis_url}
        command = ["uvicorn", f"bench.baselines.{module}:create_app", *options]
        await self.serve(module, command, port, engines | environment)
        return port

    def redis(self, **options: Any) -> redis.asyncio.Redis:
        """A client of this trial's Valkey, to be entered."""
        return redis.asyncio.Redis.from_url(self.redis_url, **options)

    async def flush_redis(self) -> None:
        """Empties Valkey."""
        async with self.redis() as client:
            await client.flushall()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection of asyncpg to this trial's database."""
        connection = await asyncpg.connect(with_driver(self.postgres_url))
        try:
            yield connection
        finally:
            await connection.close()

    async def sql(self, *statements: str) -> None:
        """Runs statements on this trial's database, one by one."""
        async with self.connection() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def rows(self, query: str, *arguments: object) -> list[Mapping[str, Any]]:
        """Rows from this trial's database."""
        async with self.connection() as connection:
            return [dict(row) for row in await connection.fetch(query, *arguments)]

    async def row(self, query: str) -> Mapping[str, Any]:
        """One row from this trial's database."""
        [row] = await self.rows(query)
        return row

    async def count(self, query: str, *arguments: object) -> int:
        """One number from this trial's database."""
        async with self.connection() as connection:
            return int(await connection.fetchval(query, *arguments) or 0)


def environment_without_ours() -> dict[str, str]:
    """The environment without Onsale's settings: those of a running suite must not change a figure."""
    ours = ("ONSALE_", *(f"{service.upper()}_" for service in SERVICES))
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


async def until_ready(child: Child, port: int, path: str) -> None:
    """Waits until the child answers 200 to `path`. Raises `RuntimeError` with the end of its log if it does not."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def is_ready() -> bool:
            assert child.returncode is None, f"{child.name} has ended"
            try:
                return (await client.get(f"http://{HOST}:{port}{path}", timeout=5)).status_code == 200
            except httpx.HTTPError:
                return False  # it does not listen yet

        try:
            await wait_until(is_ready, timeout_s=READY_S, interval_s=POLL_S)
        except AssertionError as failed:
            raise RuntimeError(f"{failed}: {child.log_tail()} (more in {child.log_path})") from None


@asynccontextmanager
async def testbed(parent: Path) -> AsyncIterator[Testbed]:
    """The testbed, in a new directory below `parent`, which is removed afterwards."""
    os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - before anything runs in this loop
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as folder:
        running = await start_databases(Path(folder), fsync=True, environ=environment_without_ours())
        try:
            pids = {child.name: child._supervisor.pid for child in running.children}
            yield Testbed(Path(folder), running.addresses, pids)
        finally:
            await running.stop()
