"""Fixtures for drills: one fleet for a test process, in which each drill opens an event of its own; measured times."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from proof.drills import recoveries, sale
from proof.drills.fleet import Fleet, running_fleet
from proof.drills.recoveries import Recovery

FOLDER = Path(__file__).parent
ROWS: list[Recovery] = []
PASSED: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--recoveries", action="store_true", help="write docs/reference/recovery.md from what was measured"
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collects the rows of passed drills, with the longest silence, which is known when a drill ends."""
    if report.when == "call" and report.passed:
        PASSED.add(report.nodeid)
    if report.when != "teardown" or report.nodeid not in PASSED:
        return
    properties = report.user_properties
    silence_s = next((cast("float", value) for name, value in properties if name == "silence_s"), None)
    rows = [Recovery(**cast("Any", row)) for name, row in properties if name == "recovery"]
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
    with running_fleet(engines, migrated, "drills") as running:
        yield running


@pytest.fixture
def recovery(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Records a row of the table: what happened, seconds until recovery, and what acknowledged data was lost."""

    def record(what: str, seconds: float, *, promise: str, lost: str = "nothing") -> None:
        print(f"{what}: {seconds:.2f} s, lost: {lost}")
        record_property("recovery", asdict(Recovery.now(what, seconds, lost, promise)))

    return record


@pytest.fixture(autouse=True)
def silence(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Records the longest silence of any fan when the drill ends."""
    sale.longest_silence_s(reset=True)
    yield
    record_property("silence_s", sale.longest_silence_s())


@pytest.fixture
async def database(fleet: Fleet) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    yield connection
    await connection.close()
