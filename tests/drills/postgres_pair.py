"""Two PostgreSQL servers, one streaming from the other; the first can be lost as a machine is, the second promoted."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onsale.local.binaries import PostgresBinaries, find_postgres
from onsale.local.ports import free_port
from onsale.local.postgres import DATABASE, USER, choose_run_as, initdb_command
from onsale.local.secret_file import write_secret
from tests.drills.fleet import HOST, Program
from tests.support.wait import wait_until

PASSWORD = "drill"
STANDBY = "standby"
SETTINGS = {"listen_addresses": HOST, "unix_socket_directories": "", "fsync": "off", "max_connections": "200"}
Rows = list[Any]


def address(places: str, database: str = DATABASE) -> str:
    """As services take it."""
    return f"postgresql://{USER}:{PASSWORD}@{places}/{database}"


class Postgres(Program):
    """A server on its own data directory. Run by root it needs a user namespace, as the embedded one does."""

    def __init__(self, home: Path, binaries: PostgresBinaries, **settings: str) -> None:
        self.home, self.port, self._binaries = home, free_port(), binaries
        run_as = choose_run_as(home)
        if run_as.user is not None or not (binaries.directory / "pg_basebackup").exists():
            pytest.skip("a pair of PostgreSQL servers needs pg_basebackup and, for root, user namespaces")
        self.prefix = run_as.prefix
        self._options = [f"--{name}={value}" for name, value in (SETTINGS | settings).items()]
        super().__init__([], home.with_suffix(".log"))

    async def create(self) -> "Postgres":
        """An empty cluster, running."""
        password = self.home.with_suffix(".password")
        write_secret(password, PASSWORD)
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
        """One of PostgreSQL's own programs, to its end."""
        command = [*self.prefix, str(self._binaries.directory / program), *options]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PGPASSWORD": PASSWORD})

    def lose(self) -> None:
        """As a machine is lost: every process at once, and nobody is left who could say that something was written."""
        for pid in self.freeze():
            os.kill(pid, signal.SIGKILL)
        self.end(signal.SIGKILL)

    def freeze(self) -> list[int]:
        """Its connections stand and nothing is answered any more; its processes, the first one last."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        pids = [*map(int, children), self._process.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    async def ask(self, question: str, *values: object, database: str = DATABASE) -> Rows:
        connection = await asyncpg.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, database=database, timeout=5
        )
        try:
            return list(await connection.fetch(question, *values))
        finally:
            await connection.close()

    async def answers(self) -> bool:
        try:
            await self.ask("SELECT 1", database="postgres")
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        return True


class Pair:
    """A primary and its streaming standby; `synchronous`: a commit is acknowledged when both have it."""

    def __init__(self, folder: Path, *, synchronous: bool, environ: Mapping[str, str]) -> None:
        binaries = find_postgres(environ, major=None)
        wait_for = {"synchronous_standby_names": STANDBY} if synchronous else {}
        self.primary = Postgres(folder / "primary", binaries, **wait_for)
        self.standby = Postgres(folder / "standby", binaries, cluster_name=STANDBY)

    @property
    def url(self) -> str:
        """Both servers in one address, as services take it."""
        places = f"{HOST}:{self.primary.port},{HOST}:{self.standby.port}"
        return address(places)

    async def start(self) -> "Pair":
        await self.primary.create()
        copy = ["-D", str(self.standby.home), "-R", "-X", "stream", "-c", "fast", "-h", HOST, "-U", USER]
        await asyncio.to_thread(self.standby.run, "pg_basebackup", *copy, "-p", str(self.primary.port))
        self.standby.start()
        await wait_until(self._streams, timeout_s=20)
        await self.primary.ask(f"CREATE DATABASE {DATABASE}", database="postgres")
        return self

    async def _streams(self) -> bool:
        rows = await self.primary.ask("SELECT state FROM pg_stat_replication", database="postgres")
        return [row["state"] for row in rows] == ["streaming"]

    async def standby_has_all(self) -> bool:
        """Whether the standby has heard everything that was written up to now."""
        [row] = await self.primary.ask("SELECT pg_current_wal_lsn() = replay_lsn AS all FROM pg_stat_replication")
        return bool(row["all"])

    async def promote(self) -> None:
        """What an operator, or whoever watches over the servers, does."""
        await self.standby.ask("SELECT pg_promote()", database="postgres")

    def end(self) -> None:
        for server in (self.standby, self.primary):
            if server.is_running:
                server.lose()
