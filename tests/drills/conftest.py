"""One fleet for all drills of a test process; each drill opens an event of its own, and leaves the fleet running."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from tests.drills import crowd, recoveries
from tests.drills.fleet import Fleet
from tests.drills.recoveries import Recovery
from tests.support.engines.engines import fast_place, in_database, run_apart, sql

FOLDER = Path(__file__).parent
ROWS: list[Recovery] = []
PASSED: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recoveries", action="store_true", help="write docs/recovery.md from what the drills measure")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Only a drill that ended well has recovered; how long its fans were left alone is known at its end."""
    if report.when == "call" and report.passed:
        PASSED.add(report.nodeid)
    if report.when != "teardown" or report.nodeid not in PASSED:
        return
    told = report.user_properties
    silence_s = next((cast("float", value) for name, value in told if name == "silence_s"), None)
    rows = [Recovery(**cast("Any", row)) for name, row in told if name == "recovery"]
    ROWS.extend(replace(row, silence_s=silence_s and round(silence_s, 2)) for row in rows)


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


@pytest.fixture(autouse=True)
def silence(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Takes down the longest silence of any fan, as the drill ends."""
    crowd.longest_silence_s(anew=True)
    yield
    record_property("silence_s", crowd.longest_silence_s())


@pytest.fixture
async def ledger(fleet: Fleet) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    yield connection
    await connection.close()
