"""PgBouncer for real: with a session for each connection it works, otherwise the boot is refused in one line."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text

from onsale.keeper import dies_with_this_process
from onsale.loopback import HOST, free_port
from onsale.postgres import NAMESPACE
from services.orders.jobs import Jobs
from shared import postgres as ledger
from shared.isolation import refuse_wrong_ledger
from shared.ledger_settings import LedgerSettings
from shared.migrate import upgrade
from shared.servers import SharedSessions
from tests.support.wait import wait_until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@contextmanager
def pooled(postgres_url: str, folder: Path, *, mode: str, robin: int = 0) -> Iterator[str]:
    """The same database through a PgBouncer of its own."""
    at, port = urlsplit(postgres_url), free_port()
    name = at.path[1:]
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={at.hostname} port={at.port} user={at.username} password={at.password}\n"
        f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n"
        f"unix_socket_dir =\ndefault_pool_size = 20\nserver_round_robin = {robin}\n"
    )
    prefix = NAMESPACE if os.geteuid() == 0 else ()
    with ExitStack() as stack, (folder / "pgbouncer.log").open("wb") as log:
        pooler = subprocess.Popen(
            [*prefix, str(PGBOUNCER), "-q", str(folder / "pgbouncer.ini")], stdout=log, stderr=log,
            preexec_fn=dies_with_this_process(signal.SIGTERM),
        )  # fmt: skip
        stack.callback(pooler.wait)
        stack.callback(pooler.kill)
        yield f"postgresql+asyncpg://{at.username}@{HOST}:{port}/{name}"


async def answers(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, urlsplit(url).port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize(("mode", "robin"), [("transaction", 0), ("transaction", 1), ("statement", 0)])
async def test_a_pooler_that_shares_sessions_is_refused_at_start(
    postgres_url: str, tmp_path: Path, mode: str, robin: int
) -> None:
    with pooled(postgres_url, tmp_path, mode=mode, robin=robin) as url:
        settings = LedgerSettings(postgres_url=url)
        await wait_until(lambda: answers(url))
        engine = ledger.connect(settings, name="test")
        with pytest.raises(SharedSessions, match="pool_mode = session"):
            await refuse_wrong_ledger(engine)
        with pytest.raises(SharedSessions):
            await upgrade(url, "queue")
        await engine.dispose()


async def test_through_a_pooler_by_sessions_everything_works(postgres_url: str, tmp_path: Path) -> None:
    """Time limits, migrations under their lock, and LISTEN."""
    with pooled(postgres_url, tmp_path, mode="session") as url:
        settings = LedgerSettings(postgres_url=url, postgres_lock_timeout_ms=1234)
        await wait_until(lambda: answers(url))
        engine = ledger.connect(settings, name="test")
        await refuse_wrong_ledger(engine)
        async with engine.begin() as connection:
            assert (await connection.execute(text("SHOW lock_timeout"))).scalar_one() == "1234ms"
        await upgrade(url, "orders")
        jobs, heard = Jobs(settings, accept_s=1), asyncio.Event()
        listening = asyncio.create_task(jobs.listen(heard.set))
        async with engine.begin() as connection:
            await connection.execute(text("SELECT 1"))
            await jobs.wake_up(connection, "AAAA")
        await wait_until(heard.is_set)
        listening.cancel()
        await asyncio.wait([listening])
        await engine.dispose()
