"""A real PgBouncer: session pooling works; in any other mode a service refuses to start, in one line."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text

from onsale.local.ports import HOST, free_port
from onsale.local.postgres import NAMESPACE
from onsale.local.supervisor import die_with_parent
from services.orders.store.store import CHANNEL, notify
from shared.postgres import engine as postgres_engine
from shared.postgres.engine import Servers, SharedSessions
from shared.postgres.migrations import upgrade
from shared.postgres.settings import PostgresSettings, Waits
from shared.process.preconditions import check_isolation_at_start
from tests.support.programs import find_program, needs
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("own_database")

PGBOUNCER = find_program("pgbouncer")
pytestmark = needs("pgbouncer")


@contextmanager
def pooled(postgres_url: str, folder: Path, *, mode: str, round_robin: int = 0) -> Iterator[str]:
    """The same database through a PgBouncer of its own."""
    server, port = urlsplit(postgres_url), free_port()
    name = server.path[1:]
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={server.hostname} port={server.port} user={server.username} "
        f"password={server.password}\n"
        f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n"
        f"unix_socket_dir =\ndefault_pool_size = 20\nserver_round_robin = {round_robin}\n"
    )
    prefix = NAMESPACE if os.geteuid() == 0 else ()
    with ExitStack() as stack, (folder / "pgbouncer.log").open("wb") as log:
        pooler = subprocess.Popen(
            [*prefix, str(PGBOUNCER), "-q", str(folder / "pgbouncer.ini")], stdout=log, stderr=log,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )  # fmt: skip
        stack.callback(pooler.wait)
        stack.callback(pooler.kill)
        yield f"postgresql+asyncpg://{server.username}@{HOST}:{port}/{name}"


async def accepts_connections(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, urlsplit(url).port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize(("mode", "round_robin"), [("transaction", 0), ("transaction", 1), ("statement", 0)])
async def test_a_pooler_that_shares_sessions_is_refused(
    postgres_url: str, tmp_path: Path, mode: str, round_robin: int
) -> None:
    with pooled(postgres_url, tmp_path, mode=mode, round_robin=round_robin) as url:
        settings = PostgresSettings(postgres_url=url)
        await wait_until(lambda: accepts_connections(url))
        db = postgres_engine.connect(settings, name="test")
        with pytest.raises(SharedSessions, match="pool_mode = session"):
            await check_isolation_at_start(db)
        with pytest.raises(SharedSessions):
            await upgrade(url, "queue")
        await db.dispose()


async def leave_prepared_statements(url: str) -> None:
    """Leaves prepared statements in three sessions of the pooler, by the names that a new process uses first."""
    plain = {"dsn": url.replace("+asyncpg", ""), "statement_cache_size": 0}
    earlier = [await asyncpg.connect(**plain) for _ in range(3)]
    for connection in earlier:
        await connection.execute("BEGIN")
    for connection in earlier:
        names = (f"__asyncpg_stmt_{n:x}__" for n in range(1, 64))
        await connection.execute("; ".join(f'PREPARE "{name}" AS SELECT 1' for name in names) + "; COMMIT")
    for connection in earlier:
        connection.terminate()


async def exit_of_service(service: str, url: str, redis_url: str) -> tuple[int, list[str]]:
    """Starts a service at a database URL; its exit code and the lines that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "onsale", "serve", service,
        env={**os.environ, "ONSALE_POSTGRES_URL": url, "ONSALE_REDIS_URL": redis_url},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, printed = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, [line for line in printed.decode().splitlines() if not line.startswith("{")]


@pytest.mark.parametrize("round_robin", [0, 1])
async def test_a_service_ends_with_one_line_though_others_left_statements_in_the_pooler(
    postgres_url: str, redis_url: str, tmp_path: Path, round_robin: int
) -> None:
    with pooled(postgres_url, tmp_path, mode="transaction", round_robin=round_robin) as url:
        await wait_until(lambda: accepts_connections(url))
        await leave_prepared_statements(url)
        services = ("queue", "inventory", "orders")
        for code, lines in await asyncio.gather(*(exit_of_service(service, url, redis_url) for service in services)):
            assert code == 2
            assert len(lines) == 1
            assert "pool_mode = session" in lines[0]


async def test_session_pooling_supports_time_limits_migrations_and_listen(postgres_url: str, tmp_path: Path) -> None:
    with pooled(postgres_url, tmp_path, mode="session") as url:
        settings = PostgresSettings(postgres_url=url)
        await wait_until(lambda: accepts_connections(url))
        db = postgres_engine.connect(settings, name="test", waits=Waits(lock_timeout_ms=1234))
        await check_isolation_at_start(db)
        async with db.begin() as connection:
            assert (await connection.execute(text("SHOW lock_timeout"))).scalar_one() == "1234ms"
        await upgrade(url, "orders")
        servers, notified = Servers(url, connect_timeout_s=5), asyncio.Event()
        listening = await servers.connect(name="test", answer_timeout_s=5)
        await listening.add_listener(CHANNEL, lambda *_: notified.set())
        await notify(db.execution_options(isolation_level="AUTOCOMMIT"), "AAAA")
        await wait_until(notified.is_set)
        listening.terminate()
        await db.dispose()
