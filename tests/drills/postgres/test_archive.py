"""The ledger's disk is lost: a base backup and the archive that `deploy/postgres/archive.conf` keeps bring it back."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from onsale.local.binaries import find_postgres
from onsale.local.ports import free_port
from onsale.local.postgres import choose_run_as, initdb_command
from tests.drills.fleet import HOST, Program
from tests.support.engines.engines import fast_place
from tests.support.wait import wait_until

CONFIGURED = Path(__file__).parents[3] / "deploy" / "postgres"
PASSWORD = "drill"


class Server:
    """PostgreSQL as compose runs it, with the files in `deploy/postgres`; only `/archive` is elsewhere."""

    def __init__(self, place: Path) -> None:
        self.place, self.port, self.archive = place, free_port(), place / "archive"
        self.binaries, self.run_as = find_postgres(os.environ, major=None), choose_run_as(place / "data")
        (self.archive / "wal").mkdir(parents=True)
        for file in CONFIGURED.glob("*.conf"):
            (place / file.name).write_text(file.read_text().replace("/archive", str(self.archive)))
        (place / "password").write_text(PASSWORD)
        self.run(*initdb_command(self.binaries, place / "data", place / "password", fsync=False))

    def run(self, *command: str) -> None:
        env = {**os.environ, "PGPASSWORD": PASSWORD}
        ran = subprocess.run([*self.run_as.prefix, *command], capture_output=True, text=True, check=False, env=env)
        assert ran.returncode == 0, ran.stderr

    def keep_base(self, place: Path) -> None:
        address = ["-h", HOST, "-p", str(self.port), "-U", "onsale"]
        self.run(str(self.binaries.directory / "pg_basebackup"), *address, "-D", str(place), "-c", "fast", "-X", "none")

    def program(self, data: Path, *options: str) -> Program:
        settings = [f"config_file={self.place}/onsale.conf", f"port={self.port}", "unix_socket_directories=", *options]
        flat = [word for setting in settings for word in ("-c", setting)]
        command = [*self.run_as.prefix, str(self.binaries.directory / "postgres"), "-D", str(data), *flat]
        return Program(command, self.place / "postgres.log")

    async def connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(f"postgresql://onsale:{PASSWORD}@{HOST}:{self.port}/postgres")

    async def ready(self) -> bool:
        """Whether it answers and has read all there is."""
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError):
            return False
        recovering = await connection.fetchval("SELECT pg_is_in_recovery()")
        await connection.close()
        return not recovering


@pytest.mark.drill
async def test_the_ledgers_disk_is_lost_and_the_archive_brings_it_back(recovery: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-archive-", dir=fast_place()) as folder:
        server = Server(Path(folder))
        if server.run_as.user is not None:
            pytest.skip("PostgreSQL would run as another user here")
        first = server.program(server.place / "data")
        first.start()
        await wait_until(server.ready, timeout_s=30)
        server.keep_base(server.place / "base")
        await _write_and_archive(server)
        first.end(signal.SIGKILL)
        shutil.rmtree(server.place / "data")

        lost_s = time.monotonic()
        (server.place / "base" / "recovery.signal").touch()
        second = server.program(server.place / "base", f"restore_command=cp {server.archive}/wal/%f %p")
        second.start()
        try:
            await wait_until(server.ready, timeout_s=30)
            recovery("the ledger's disk lost, base backup and archive replayed", time.monotonic() - lost_s,
                     promise="–", lost="at most the last minute, as set")  # fmt: skip
            connection = await server.connect()
            assert await connection.fetchval("SELECT count(*) FROM sold") == 1000
            await connection.close()
        finally:
            second.end(signal.SIGINT)


async def _write_and_archive(server: Server) -> None:
    """A thousand tickets after the base backup, and the file of the log that has them put away."""
    connection = await server.connect()
    await connection.execute("CREATE TABLE sold AS SELECT n FROM generate_series(1, 1000) n")
    wanted = await connection.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
    await connection.close()
    await wait_until(lambda: (server.archive / "wal" / wanted).exists(), timeout_s=30)
