"""One fleet for all drills of a test process; each drill opens an event of its own, and leaves the fleet running."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from onsale.engines import Engines, with_driver
from tests.drills import recoveries
from tests.drills.fleet import Fleet
from tests.drills.recoveries import Recovery
from tests.support.engines import fast_place, in_database, run_apart, sql

FOLDER = Path(__file__).parent
ROWS: list[Recovery] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recoveries", action="store_true", help="write docs/recovery.md from what the drills measure")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Only a drill that ended well has recovered."""
    if report.when == "call" and report.passed:
        ROWS.extend(Recovery(**cast("Any", row)) for name, row in report.user_properties if name == "recovery")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--recoveries", default=False) and ROWS:
        recoveries.keep(ROWS)


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
def recovery(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Notes a row of the table: what happened, seconds until it was well again, what acknowledged thing was lost."""

    def note(what: str, seconds: float, *, promise: str, lost: str = "nothing") -> None:
        print(f"{what}: {seconds:.2f} s, lost: {lost}")  # noqa: T201
        record_property("recovery", asdict(Recovery.now(what, seconds, lost, promise)))

    return note


@pytest.fixture
async def ledger(fleet: Fleet) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    yield connection
    await connection.close()
