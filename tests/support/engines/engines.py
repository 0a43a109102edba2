"""PostgreSQL and Valkey for tests: one server of each per process, an empty database and an empty Valkey per test.

Tests never use a server they did not start: addresses in the environment are ignored.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
import redis.asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from onsale.local.engines import Engines, start_databases, with_driver
from shared.postgres.migrations import upgrade
from shared.routes import SERVICES_WITH_TABLES
from tests.support.engines.database import Database, connect_for_tests, kept_database

T = TypeVar("T")
MIGRATED = "migrated"
ENOUGH_BYTES = 8_000_000_000
database_numbers = itertools.count(1)


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in an event loop and a thread of its own, apart from the loop of the test."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            outcome.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome.result()


def fast_directory() -> Path | None:
    """A directory in memory if there is enough: PostgreSQL creates a thousand small files. None is the default one."""
    memory = Path("/dev/shm")
    enough = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ENOUGH_BYTES
    return memory if enough else None


@contextmanager
def running_engines() -> Iterator[Engines]:
    """PostgreSQL and Valkey of this process, without fsync, stopped at the end."""
    environ = {
        name: value for name, value in os.environ.items() if name not in ("ONSALE_POSTGRES_URL", "ONSALE_REDIS_URL")
    }
    with tempfile.TemporaryDirectory(prefix="onsale-test-", dir=fast_directory()) as data_dir:
        running = run_in_thread(start_databases(Path(data_dir), fsync=False, environ=environ))
        try:
            yield running.addresses
        finally:
            run_in_thread(running.stop())


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """PostgreSQL and Valkey, started for this test process and stopped at its end."""
    with running_engines() as addresses:
        yield addresses


@pytest.fixture
async def redis_url(engines: Engines) -> str:
    """The URL of an empty Valkey."""
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


def migrate_template(engines: Engines) -> str:
    """Creates the template database with the tables of every service; its name."""
    run_in_thread(sql(engines, f"create database {MIGRATED}"))
    for service in SERVICES_WITH_TABLES:
        run_in_thread(upgrade(in_database(engines, MIGRATED), service))
    return MIGRATED


@pytest.fixture(scope="session")
def migrated(engines: Engines) -> str:
    """The name of a template database with the tables of every service; each test gets a copy."""
    return migrate_template(engines)


@contextmanager
def copied_database(engines: Engines, migrated: str) -> Iterator[str]:
    """The SQLAlchemy URL of a fresh, migrated database, dropped at the end."""
    name = f"test_{next(database_numbers)}"
    run_in_thread(sql(engines, f"create database {name} template {migrated}"))
    yield in_database(engines, name)
    run_in_thread(sql(engines, f"drop database {name} with (force)"))


@pytest.fixture(scope="session")
async def database(engines: Engines, migrated: str) -> AsyncIterator[Database]:
    """The database that the tests of this process share, one after the other."""
    with copied_database(engines, migrated) as url:
        async with kept_database(url) as database:
            yield database


@pytest.fixture
def own_database(engines: Engines, migrated: str) -> Iterator[str]:
    """The SQLAlchemy URL of a migrated database for this test alone, which may change its schema or break its
    connections. The shared database refuses both.
    """
    with copied_database(engines, migrated) as url:
        yield url


@pytest.fixture
async def postgres_url(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[str]:
    """The SQLAlchemy URL of a migrated database without rows: the shared one, or that of `own_database`."""
    if "own_database" in request.fixturenames:
        yield request.getfixturevalue("own_database")
    else:
        yield database.url
        await database.empty()


@pytest.fixture
async def postgres(postgres_url: str, database: Database) -> AsyncIterator[AsyncEngine]:
    """Connections to the database of the test."""
    if postgres_url == database.url:
        yield database.db
    else:
        db = connect_for_tests(postgres_url)
        yield db
        await db.dispose()


async def sql(engines: Engines, statement: str) -> None:
    """Runs a statement outside a transaction, in the server's default database."""
    connection = await asyncpg.connect(with_driver(engines.postgres_url))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def in_database(engines: Engines, name: str) -> str:
    """The server's URL with another database."""
    server, _ = engines.postgres_url.rsplit("/", 1)
    return f"{server}/{name}"
