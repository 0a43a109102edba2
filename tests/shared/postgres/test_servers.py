"""Several servers behind one address: who is taken, who is not, and what becomes of connections to one that is gone."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from onsale.local.ports import HOST, free_port
from shared.postgres import engine as ledger
from shared.postgres.connect import NoServer, Servers, WrongAddress, hosts, libpq_url
from shared.postgres.errors import TRIES_MAX, is_busy, is_gone, retry_deadlocks
from shared.postgres.fenced_transaction import fenced
from shared.postgres.settings import PostgresSettings
from shared.web.problems import Unavailable
from tests.support.wait import wait_until

PID = text("SELECT pg_backend_pid()")
AWAY = "onsale-away"


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of somebody who takes connections and says nothing."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, HOST, 0)
    yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    opened = ledger.connect(PostgresSettings(postgres_url=postgres_url, postgres_pool_max=3), name="test")
    yield opened
    await opened.dispose()


def behind(postgres_url: str, *places: str) -> str:
    """The same address, with other servers before its own."""
    head, _, rest = postgres_url.rpartition("@")
    return f"{head}@{','.join(places)},{rest}"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p@one/db", [None]),
        ("postgresql://u@one:6000,two/db", [("one", 6000), ("two", 5432)]),
        ("postgresql://[::1]:6000,two:1/db", [("::1", 6000), ("two", 1)]),
        ("postgresql:///db?host=/run/postgresql", [None]),
    ],
)
def test_an_address_names_its_servers(url: str, found: list[tuple[str, int] | None]) -> None:
    assert hosts(url) == found


@pytest.mark.parametrize("url", ["nonsense", "redis://one", "postgresql://u@one:x,two/db", "postgresql://u@,two/db"])
def test_what_is_no_address_is_told_at_start(url: str) -> None:
    with pytest.raises(WrongAddress, match="postgresql://user@"):
        Servers(url, connect_timeout_s=1)


async def test_the_server_that_takes_writes_is_found_behind_a_dead_and_a_silent_one(
    postgres_url: str, silent: str
) -> None:
    servers = Servers(behind(postgres_url, f"{HOST}:{free_port()}", silent), connect_timeout_s=0.3)
    (await servers.connect(name="test")).terminate()
    started_s = time.perf_counter()
    (await servers.connect(name="test")).terminate()
    assert time.perf_counter() - started_s < 0.3, "the one that answered last is asked first"


async def test_a_server_that_takes_no_writes_is_not_taken(postgres: AsyncEngine, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    async with postgres.connect() as connection:
        await connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        await connection.commit()
    with pytest.raises(NoServer, match="standby or read-only"):
        await Servers(postgres_url, connect_timeout_s=1).connect(name="test")


async def pids(db: AsyncEngine, first: str = "SELECT 1") -> set[int]:
    """Of three connections at once: all that the pool has, after each has done something."""
    async with db.connect() as one, db.connect() as two, db.connect() as three:
        for connection in (one, two, three):
            await connection.execute(text(first))
            await connection.commit()
        return {(await connection.execute(PID)).scalar_one() for connection in (one, two, three)}


@pytest.mark.parametrize("by_driver", [False, True])
async def test_when_a_server_turns_read_only_its_connections_go_together(db: AsyncEngine, by_driver: bool) -> None:
    """Which a standby is, too. Hot statements run on the driver itself, the others through SQLAlchemy."""
    before, write = (
        await pids(db, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
        "CREATE TABLE nothing ()",
    )
    if by_driver:
        with pytest.raises(Unavailable):
            async with fenced(db, "BEGIN") as driver:
                await driver.execute(write)
    else:
        async with db.connect() as connection:
            with pytest.raises(OperationalError, match="read-only transaction"):
                await connection.execute(text(write))
    assert not before & await pids(db)


async def test_connections_that_were_cut_are_replaced_before_anybody_uses_them(
    db: AsyncEngine, postgres: AsyncEngine
) -> None:
    before = await pids(db)
    async with postgres.connect() as connection:
        await connection.execute(
            text("SELECT pg_terminate_backend(p) FROM unnest(CAST(:p AS int[])) p"), {"p": list(before)}
        )
        await wait_until(lambda: _gone(postgres, before))
    assert not before & await pids(db)


async def _gone(postgres: AsyncEngine, those: set[int]) -> bool:
    async with postgres.connect() as connection:
        count = text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:p)")
        return bool((await connection.execute(count, {"p": list(those)})).scalar_one() == 0)


async def test_a_server_that_does_not_answer_is_given_up_but_its_statement_is_not_stopped(
    postgres_url: str, postgres: AsyncEngine
) -> None:
    """Stopping a commit that waits for its standby would make it seen before it is safe."""
    waits = PostgresSettings(
        postgres_url=postgres_url, postgres_lock_timeout_ms=100, postgres_statement_timeout_ms=290,
        postgres_answer_timeout_s=0.3,
    )  # fmt: skip
    db = ledger.connect(waits, name="away").execution_options(isolation_level="AUTOCOMMIT")
    async with db.connect() as connection:
        await connection.execute(text("SET statement_timeout = 0"))
        with pytest.raises(OperationalError):
            await connection.execute(text("SELECT pg_sleep(0.8)"))
    working = text(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{AWAY}' AND state = 'active'")
    async with postgres.connect() as connection:
        assert (await connection.execute(working)).scalar_one() == 1
    await db.dispose()


async def test_a_ledger_that_is_busy_is_neither_gone_nor_at_fault(db: AsyncEngine) -> None:
    """Told apart from a statement that is wrong."""
    async with db.begin() as connection:
        await connection.execute(text("SET LOCAL statement_timeout = 10"))
        with pytest.raises(ledger.DBAPIError) as slow:
            await connection.execute(text("SELECT pg_sleep(1)"))
    async with db.connect() as connection:
        with pytest.raises(ledger.DBAPIError) as wrong:
            await connection.execute(text("SELECT nonsense"))
    assert (is_busy(slow.value), is_gone(slow.value)) == (True, False)
    assert (is_busy(wrong.value), is_gone(wrong.value)) == (False, False)


def test_the_plain_address_is_what_psql_reads() -> None:
    assert libpq_url("postgresql+asyncpg://u@h/db") == "postgresql://u@h/db"


async def test_the_loser_of_a_deadlock_begins_again_but_not_for_ever() -> None:
    tries = 0

    async def loses(times: int) -> int:
        nonlocal tries
        tries += 1
        if tries <= times:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return tries

    assert await retry_deadlocks(lambda: loses(TRIES_MAX - 1)) == TRIES_MAX
    tries = 0
    with pytest.raises(Unavailable):
        await retry_deadlocks(lambda: loses(TRIES_MAX))
