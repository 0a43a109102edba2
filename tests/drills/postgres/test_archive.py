"""The disk of PostgreSQL is lost, and the data is recovered from a base backup and the WAL archive of
`deploy/postgres/archive.conf`.
"""

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
from tests.support.engines.engines import fast_directory
from tests.support.wait import wait_until

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "postgres"
PASSWORD = "drill"


class Server:
    """PostgreSQL as compose runs it, with the files of `deploy/postgres`, and `/archive` in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.archive = folder, free_port(), folder / "archive"
        self.binaries, self.run_as = find_postgres(os.environ, major=None), choose_run_as(folder / "data")
        (self.archive / "wal").mkdir(parents=True)
        for file in CONFIGURATION.glob("*.conf"):
            (folder / file.name).write_text(file.read_text().replace("/archive", str(self.archive)))
        (folder / "password").write_text(PASSWORD)
        self.run(*initdb_command(self.binaries, folder / "data", folder / "password", fsync=False))

    def run(self, *command: str) -> None:
        env = {**os.environ, "PGPASSWORD": PASSWORD}
        result = subprocess.run([*self.run_as.prefix, *command], capture_output=True, text=True, check=False, env=env)
        assert result.returncode == 0, result.stderr

    def take_base_backup(self, folder: Path) -> None:
        address = ["-h", HOST, "-p", str(self.port), "-U", "onsale"]
        self.run(
            str(self.binaries.directory / "pg_basebackup"), *address, "-D", str(folder), "-c", "fast", "-X", "none"
        )

    def program(self, data: Path, *options: str) -> Program:
        settings = [f"config_file={self.folder}/onsale.conf", f"port={self.port}", "unix_socket_directories=", *options]
        flags = [option for setting in settings for option in ("-c", setting)]
        command = [*self.run_as.prefix, str(self.binaries.directory / "postgres"), "-D", str(data), *flags]
        return Program(command, self.folder / "postgres.log")

    async def connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(f"postgresql://onsale:{PASSWORD}@{HOST}:{self.port}/postgres")

    async def ready(self) -> bool:
        """Whether it answers and has replayed the archive."""
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError):
            return False
        recovering = await connection.fetchval("SELECT pg_is_in_recovery()")
        await connection.close()
        return not recovering


async def test_a_base_backup_and_the_archive_recover_a_lost_disk(recovery: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-archive-", dir=fast_directory()) as folder:
        server = Server(Path(folder))
        if server.run_as.user is not None:
            pytest.skip("PostgreSQL would run as another user here")
        first = server.program(server.folder / "data")
        first.start()
        await wait_until(server.ready, timeout_s=30)
        server.take_base_backup(server.folder / "base")
        await _write_and_archive(server)
        first.end(signal.SIGKILL)
        shutil.rmtree(server.folder / "data")

        lost_s = time.monotonic()
        (server.folder / "base" / "recovery.signal").touch()
        second = server.program(server.folder / "base", f"restore_command=cp {server.archive}/wal/%f %p")
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
    """Writes a thousand rows after the base backup and waits until their WAL file is archived."""
    connection = await server.connect()
    await connection.execute("CREATE TABLE sold AS SELECT n FROM generate_series(1, 1000) n")
    wal_file = await connection.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
    await connection.close()
    await wait_until(lambda: (server.archive / "wal" / wal_file).exists(), timeout_s=30)
