"""The stage both sides play on: one PostgreSQL and one Valkey with everything forced to disk, a fresh database a turn.

Only the side whose turn it is runs; a turn begins with an empty Valkey and a checkpoint, so that no side inherits the
other's unfinished work.
"""

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import redis.asyncio

from onsale.local.engines import Engines, start_engines, with_driver
from onsale.local.ports import HOST, free_port
from onsale.local.process import Child
from shared.web.routes import SERVICES

READY_S = 30.0
POLL_S = 0.05


@dataclass
class Stage:
    """The engines, and where logs and locks of this run are kept."""

    data_dir: Path
    engines: Engines
    pids: dict[str, int] = field(default_factory=dict)
    template: str = "template1"
    _turns: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["Turn"]:
        """An empty Valkey and a fresh database, dropped afterwards."""
        name = f"turn_{next(self._turns)}"
        await self._sql(f"CREATE DATABASE {name} TEMPLATE {self.template}", "CHECKPOINT")
        server, _ = self.engines.postgres_url.rsplit("/", 1)
        try:
            async with AsyncExitStack() as servers:
                turn = Turn(self, f"{server}/{name}", self.engines.redis_url, servers)
                await turn.forget_engine()
                yield turn
        finally:
            await self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    async def settings(self) -> dict[str, str]:
        """What the engines themselves say about how they keep data; both sides run on these."""
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
class Turn:
    """One side's turn. `postgres_url` names SQLAlchemy's driver; servers started here end with the turn. `told` is the
    environment each server was given.
    """

    stage: Stage
    postgres_url: str
    redis_url: str
    _servers: AsyncExitStack
    pids: dict[str, int] = field(default_factory=dict)
    told: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def serve(
        self, name: str, command: Sequence[str], port: int, environment: Mapping[str, str], *, ready: str = "/readyz"
    ) -> None:
        """Start a server as a process of its own and wait until it answers 200 to `ready` on `port`."""
        child = Child.start(
            [sys.executable, "-P", "-m", *command],
            name=name,
            lock_path=self.stage.data_dir / "engines" / f"{name}.lock",
            log_path=self.stage.data_dir / "log" / f"{name}.log",
            stop_signal="TERM",
            env={**_untouched(), "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        )
        self._servers.push_async_callback(child.stop)
        self.pids[name], self.told[name] = child._keeper.pid, environment
        await _ready(child, port, ready)

    @asynccontextmanager
    async def some(self) -> AsyncIterator["Turn"]:
        """The same turn for servers that end before it does."""
        async with AsyncExitStack() as servers:
            yield Turn(self.stage, self.postgres_url, self.redis_url, servers)

    async def serve_textbook(self, module: str, *, processes: int = 1, **environment: str) -> int:
        """Uvicorn with a baseline in it; its port."""
        port = free_port()
        options = [
            "--workers",
            str(processes),
            "--factory",
            "--host",
            HOST,
            "--port",
            str(port),
            "--loop",
            "uvloop",
            "--http",
            "httptools",
        ]
        options += ["--timeout-worker-healthcheck", str(round(READY_S))]  # one that is busy for 5 s would be killed
        options += ["--no-access-log", "--no-server-header", "--log-level", "warning", "--backlog", "4096"]
        engines = {"BENCH_POSTGRES_URL": with_driver(self.postgres_url), "BENCH_REDIS_URL": self.redis_url}
        command = ["uvicorn", f"bench.baselines.{module}:create_app", *options]
        await self.serve(module, command, port, engines | environment)
        return port

    async def forget_engine(self) -> None:
        """Valkey loses everything."""
        async with redis.asyncio.Redis.from_url(self.redis_url) as client:
            await client.flushall()

    async def sql(self, *statements: str) -> None:
        """Statements on this turn's ledger, one by one."""
        connection = await asyncpg.connect(with_driver(self.postgres_url))
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    async def count(self, query: str, *arguments: object) -> int:
        """One number from this turn's ledger."""
        connection = await asyncpg.connect(with_driver(self.postgres_url))
        value = await connection.fetchval(query, *arguments)
        await connection.close()
        return int(value or 0)

    async def row(self, query: str) -> Mapping[str, Any]:
        """One row from this turn's ledger."""
        connection = await asyncpg.connect(with_driver(self.postgres_url))
        row = await connection.fetchrow(query)
        await connection.close()
        return dict(row or {})


def _untouched() -> dict[str, str]:
    """The environment without settings of ours: what somebody has set for a running suite must not colour a figure."""
    ours = ("ONSALE_", *(f"{service.upper()}_" for service in SERVICES))
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


async def _ready(child: Child, port: int, path: str) -> None:
    deadline = time.monotonic() + READY_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            if child.returncode is not None:
                raise RuntimeError(f"{child.name} has ended: {child.last_words()} (more in {child.log_path})")
            try:
                answer = await client.get(f"http://{HOST}:{port}{path}", timeout=5)
                if answer.status_code == 200:
                    return
            except httpx.HTTPError:
                pass  # it does not listen yet
            if time.monotonic() > deadline:
                raise RuntimeError(f"{child.name} is not ready: {child.last_words()} (more in {child.log_path})")
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def stage(parent: Path) -> AsyncIterator[Stage]:
    """The stage, on a new directory below `parent`, which is removed afterwards."""
    os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - before anything runs in this loop
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as folder:
        running = await start_engines(Path(folder), fsync=True, environ=_untouched())
        try:
            pids = {child.name: child._keeper.pid for child in running.children}
            yield Stage(Path(folder), running.engines, pids)
        finally:
            await running.stop()
