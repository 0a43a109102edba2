"""One fleet for all drills of a test process; each drill opens an event of its own, and leaves the fleet running."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from onsale.engines import Engines, with_driver
from tests.drills.fleet import Fleet
from tests.support.engines import fast_place, in_database, run_apart, sql

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("journey")


@pytest.fixture(scope="session")
def fleet(engines: Engines, migrated: str) -> Iterator[Fleet]:
    run_apart(sql(engines, f"create database drills template {migrated}"))
    with tempfile.TemporaryDirectory(prefix="onsale-fleet-", dir=fast_place()) as folder:
        running = Fleet(Path(folder) / "data", in_database(engines, "drills"))
        try:
            yield running.start().wait_until_ready()
        finally:
            running.end()


@pytest.fixture
async def ledger(fleet: Fleet) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    yield connection
    await connection.close()
