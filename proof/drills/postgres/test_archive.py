"""The disk of PostgreSQL is lost, and the data is recovered from a base backup and the WAL archive of
`deploy/postgres/archive.conf`.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import asyncpg

from onsale.local.binaries import find_postgres
from onsale.local.ports import HOST
from onsale.local.postgres import USER
from proof.drills.postgres_pair import Postgres
from proof.drills.sale import Recorder
from tests.support.engines.engines import fast_directory
from tests.support.wait import wait_until

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "postgres"


async def has_replayed(server: Postgres) -> bool:
    """Whether it answers and has replayed the archive."""
    try:
        [row] = await server.query("SELECT pg_is_in_recovery() AS recovering", database="postgres")
    except (OSError, asyncpg.PostgresError):
        return False
    return not row["recovering"]


async def test_a_base_backup_and_the_archive_recover_a_lost_disk(recovery: Recorder) -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-archive-", dir=fast_directory()) as directory:
        folder, binaries = Path(directory), find_postgres(os.environ, major=None)
        wal = folder / "archive" / "wal"
        await asyncio.to_thread(wal.mkdir, parents=True)
        for file in CONFIGURATION.glob("*.conf"):  # as compose runs it, with `/archive` in the folder
            (folder / file.name).write_text(file.read_text().replace("/archive", str(folder / "archive")))
        configured = {"config_file": f"{folder}/onsale.conf"}
        first = await Postgres(folder / "data", binaries, **configured).create()
        backup = ["-D", f"{folder}/base", "-c", "fast", "-X", "none", "-h", HOST, "-p", str(first.port), "-U", USER]
        await asyncio.to_thread(first.run, "pg_basebackup", *backup)
        await first.query("CREATE TABLE sold AS SELECT n FROM generate_series(1, 1000) n", database="postgres")
        [switched] = await first.query("SELECT pg_walfile_name(pg_switch_wal()) AS file", database="postgres")
        await wait_until(lambda: (wal / switched["file"]).exists(), timeout_s=30)
        first.end(signal.SIGKILL)
        shutil.rmtree(first.home)

        lost_s = time.monotonic()
        (folder / "base" / "recovery.signal").touch()
        second = Postgres(folder / "base", binaries, restore_command=f"cp {wal}/%f %p", **configured)
        second.start()
        try:
            await wait_until(lambda: has_replayed(second), timeout_s=30)
            recovery("the ledger's disk lost, base backup and archive replayed", time.monotonic() - lost_s,
                     promise="–", lost="at most the last minute, as set")  # fmt: skip
            [row] = await second.query("SELECT count(*) AS kept FROM sold", database="postgres")
            assert row["kept"] == 1000
        finally:
            second.end(signal.SIGINT)
