"""A PostgreSQL primary with a streaming standby: the primary can be lost as a machine is, and the standby promoted."""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onsale.atomic_file import atomic_write
from onsale.local.binaries import PostgresBinaries, find_postgres
from onsale.local.ports import HOST, free_port
from onsale.local.postgres import DATABASE, USER, choose_run_as, initdb_command
from tests.support.engines.engines import fast_directory
from tests.support.running.program import Program
from tests.support.wait import wait_until

PASSWORD = "drill"
STANDBY = "standby"
SETTINGS = {
    "listen_addresses": HOST, "unix_socket_directories": "", "fsync": "off", "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # killed, it leaves nothing outside of its directory
}  # fmt: skip
Rows = list[Any]


def address(hosts: str, database: str = DATABASE) -> str:
    """A `postgresql://` URL, as services take it."""
    return f"postgresql://{USER}:{PASSWORD}@{hosts}/{database}"


class Postgres(Program):
    """A PostgreSQL server on a data directory of its own. Root needs a user namespace to run it."""

    def __init__(self, home: Path, binaries: PostgresBinaries, **settings: str) -> None:
        self.home, self.port, self._binaries = home, free_port(), binaries
        run_as = choose_run_as(home)
        if run_as.user is not None or not (binaries.directory / "pg_basebackup").exists():
            pytest.skip("a pair of PostgreSQL servers needs pg_basebackup and, for root, user namespaces")
        self.prefix = run_as.prefix
        self._options = [f"--{name}={value}" for name, value in (SETTINGS | settings).items()]
        super().__init__([], home.with_suffix(".log"))

    async def create(self) -> "Postgres":
        """Makes an empty cluster and starts it."""
        password = self.home.with_suffix(".password")
        atomic_write(password, PASSWORD)
        _, *options = initdb_command(self._binaries, self.home, password, fsync=False)
        await asyncio.to_thread(self.run, "initdb", *options)
        self.start()
        await wait_until(self.answers, timeout_s=20)
        return self

    def start(self) -> None:
        run = [str(self._binaries.directory / "postgres"), "-D", str(self.home), f"--port={self.port}", *self._options]
        self.command = [*self.prefix, *run]
        super().start()

    def run(self, program: str, *options: str) -> None:
        """Runs one of PostgreSQL's own programs."""
        command = [*self.prefix, str(self._binaries.directory / program), *options]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PGPASSWORD": PASSWORD})

    def lose(self) -> None:
        """Kills all processes at once, as when a machine is lost: no commit is acknowledged any more."""
        for pid in self.freeze():
            os.kill(pid, signal.SIGKILL)
        self.end(signal.SIGKILL)

    def freeze(self) -> list[int]:
        """Stops all processes: connections stay open without an answer. Returns their ids, the postmaster's last."""
        self.send(signal.SIGSTOP)
        postmaster = self.process.pid
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        pids = [*map(int, children), postmaster]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    async def query(self, statement: str, *values: object, database: str = DATABASE) -> Rows:
        connection = await asyncpg.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, database=database, timeout=5
        )
        try:
            return list(await connection.fetch(statement, *values))
        finally:
            await connection.close()

    async def answers(self) -> bool:
        try:
            await self.query("SELECT 1", database="postgres")
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        return True


class PostgresPair:
    """A primary and its streaming standby; `synchronous`: a commit is acknowledged when both have it."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        binaries = find_postgres(os.environ, major=None)
        settings = {"synchronous_standby_names": STANDBY} if synchronous else {}
        self.primary = Postgres(folder / "primary", binaries, **settings)
        self.standby = Postgres(folder / "standby", binaries, cluster_name=STANDBY)

    @property
    def url(self) -> str:
        """One URL that names both servers."""
        hosts = f"{HOST}:{self.primary.port},{HOST}:{self.standby.port}"
        return address(hosts)

    async def start(self) -> "PostgresPair":
        await self.primary.create()
        options = ["-D", str(self.standby.home), "-R", "-X", "stream", "-c", "fast", "-h", HOST, "-U", USER]
        await asyncio.to_thread(self.standby.run, "pg_basebackup", *options, "-p", str(self.primary.port))
        self.standby.start()
        await wait_until(self._is_streaming, timeout_s=20)
        await self.primary.query(f"CREATE DATABASE {DATABASE}", database="postgres")
        return self

    async def _is_streaming(self) -> bool:
        rows = await self.primary.query("SELECT state FROM pg_stat_replication", database="postgres")
        return [row["state"] for row in rows] == ["streaming"]

    async def standby_has_all(self) -> bool:
        """Whether the standby has replayed everything written until now."""
        [row] = await self.primary.query("SELECT pg_current_wal_lsn() = replay_lsn AS all FROM pg_stat_replication")
        return bool(row["all"])

    async def promote(self) -> None:
        """Promotes the standby, as an operator or a failover manager does."""
        await self.standby.query("SELECT pg_promote()", database="postgres")

    def end(self) -> None:
        for server in (self.standby, self.primary):
            if server.is_running:
                server.lose()


@asynccontextmanager
async def postgres_pair(*, synchronous: bool) -> AsyncIterator[PostgresPair]:
    """A running pair in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="onsale-pair-", dir=fast_directory()) as folder:
        pair = PostgresPair(Path(folder), synchronous=synchronous)
        try:
            yield await pair.start()
        finally:
            pair.end()
