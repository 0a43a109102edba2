"""Real engines for tests: one PostgreSQL and one Valkey per process, a fresh database and an empty Valkey per test.

Tests never touch an engine they did not start themselves: addresses in the environment are ignored here.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
import redis.asyncio
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from onsale.local.engines import Engines, start_databases, with_driver
from shared.postgres.migrations import upgrade
from shared.web.routes import SERVICES_WITH_TABLES

T = TypeVar("T")
MIGRATED = "migrated"
PLENTY_BYTES = 8_000_000_000
database_numbers = itertools.count(1)


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in an event loop of its own, in a thread of its own: the tests' loops do not notice."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(work))
        except BaseException as problem:  # noqa: BLE001 - handed to the thread that asked
            outcome.set_exception(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome.result()


def fast_place() -> Path | None:
    """Memory that looks like a disk, where there is plenty: PostgreSQL makes a thousand small files."""
    memory = Path("/dev/shm")
    plenty = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > PLENTY_BYTES
    return memory if plenty else None


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Both engines, started for this test process and stopped with it; nothing is forced to disk."""
    environ = {
        name: value for name, value in os.environ.items() if name not in ("ONSALE_POSTGRES_URL", "ONSALE_REDIS_URL")
    }
    with tempfile.TemporaryDirectory(prefix="onsale-test-", dir=fast_place()) as data_dir:
        running = run_apart(start_databases(Path(data_dir), fsync=False, environ=environ))
        try:
            yield running.addresses
        finally:
            run_apart(running.stop())


@pytest.fixture
async def redis_url(engines: Engines) -> str:
    """The address of an empty Valkey."""
    client = redis.asyncio.Redis.from_url(engines.redis_url)
    await client.flushall()
    await client.aclose()
    return engines.redis_url


@pytest.fixture(name="redis")
async def redis_client(redis_url: str) -> AsyncIterator["redis.asyncio.Redis"]:
    """A client of an empty Valkey."""
    client = redis.asyncio.Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def migrated(engines: Engines) -> str:
    """The name of a database with every service's tables in it, made once and cloned for each test."""
    run_apart(sql(engines, f"create database {MIGRATED}"))
    for service in SERVICES_WITH_TABLES:
        run_apart(upgrade(in_database(engines, MIGRATED), service))
    return MIGRATED


@pytest.fixture
async def postgres_url(engines: Engines, migrated: str) -> AsyncIterator[str]:
    """The address (for SQLAlchemy, asyncpg) of a fresh, migrated database, dropped afterwards."""
    name = f"test_{next(database_numbers)}"
    await sql(engines, f"create database {name} template {migrated}")
    yield in_database(engines, name)
    await sql(engines, f"drop database {name} with (force)")


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a fresh, migrated database."""
    db = create_async_engine(postgres_url)
    yield db
    await db.dispose()


async def sql(engines: Engines, statement: str) -> None:
    """Run a statement outside any transaction, in the server's first database."""
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def in_database(engines: Engines, name: str) -> str:
    """The server's address with another database."""
    server, _ = engines.postgres_url.rsplit("/", 1)
    return f"{server}/{name}"
