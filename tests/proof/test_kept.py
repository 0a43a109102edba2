"""What is kept: data of the released version is opened by today's code; the record of what was tried adds up."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from proof import record
from proof.drills import recoveries
from proof.part import Budget, Result, Trial
from proof.record import Record, Tally
from proof.upgrades import history
from proof.upgrades import run as proof
from proof.upgrades.history import NO_HISTORY, commit_before, has_history, releases
from proof.upgrades.rows import fill, lost, open_schema, values_of
from shared import VERSION
from shared.routes import SERVICES_WITH_TABLES
from tests.support.engines.engines import in_database, sql

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

needs_history = pytest.mark.skipif(not has_history(), reason=NO_HISTORY)
ROW = "CREATE TABLE {}.t (reference text, customer_key text, version bigint)"
databases = itertools.count(1)


@pytest.fixture
async def empty_url(engines: Engines) -> AsyncIterator[str]:
    """The URL of a database without tables."""
    name = f"released_{next(databases)}"
    await sql(engines, f"create database {name}")
    yield in_database(engines, name)
    await sql(engines, f"drop database {name} with (force)")


@needs_history
def test_every_release_before_this_version_is_found() -> None:
    assert list(releases())[-1] == "0.1.0"
    assert VERSION not in releases()
    assert len(commit_before()) == 40


@needs_history
@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_every_value_of_the_first_release_is_there_after_the_upgrade(
    service: str, empty_url: str, tmp_path: Path
) -> None:
    assert await open_schema(releases()["0.1.0"], service, empty_url, tmp_path) == []


async def test_a_value_that_is_lost_on_the_way_is_reported(empty_url: str) -> None:
    connection = await asyncpg.connect(with_driver(empty_url))
    try:
        await connection.execute(f"CREATE SCHEMA s; {ROW.format('s')}")
        await fill(connection, "s")
        before = await values_of(connection, "s")
        assert lost(before, before) == []
        await connection.execute("UPDATE s.t SET customer_key = NULL")
        assert lost(before, await values_of(connection, "s")) == ["t: customer_key"]
        await connection.execute("DELETE FROM s.t")
        assert "customer_key, reference" in lost(before, await values_of(connection, "s"))[0]
    finally:
        await connection.close()


def test_a_checkout_without_history_counts_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "has_history", lambda: False)
    result = proof.run(Budget(20, 1))
    assert set(result.counts.values()) == {0}
    assert NO_HISTORY in capsys.readouterr().out


@needs_history
def test_packages_of_a_release_that_are_missing_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = '[project]\ndependencies = ["pytest>=8", "not-there-1[extra]>=2; python_version > \'3\'"]'
    with monkeypatch.context() as patch:
        patch.setattr(history, "git", lambda *words: needs)
        assert history.not_installed("c") == ["not-there-1"]
    monkeypatch.setattr(proof, "not_installed", lambda commit: ["not-there-1"])
    with pytest.raises(SystemExit, match=r"version 0\.1\.0 needs not-there-1, which this environment does not have"):
        proof.run(Budget(20, 1))


KILLED, FLUSHED = "queue killed", "Valkey flushed"
FIRST = Record.of(
    Result({"trials": 2}, [Trial(KILLED, True, 3.5, 0), Trial(KILLED, False, 1.0, 2), Trial(FLUSHED, True, 0.2, 0)]),
    1800, date="2026-11-20",
)  # fmt: skip
SECOND = Record.of(Result({"trials": 1}, [Trial(KILLED, True, 9.0, 0)]), 3600, date="2026-11-25")


def test_two_runs_add_up_in_any_order() -> None:
    both = FIRST + SECOND
    assert both == SECOND + FIRST
    assert (both.hours, both.counts, both.since, both.until) == (1.5, {"trials": 3}, "2026-11-20", "2026-11-25")
    assert both.faults[KILLED] == Tally(KILLED, 3, 2, 9.0, 2, "2026-11-20")
    assert Record() + FIRST == FIRST + Record() == FIRST


def test_a_saved_record_is_read_as_it_was(tmp_path: Path) -> None:
    (FIRST + SECOND).write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == FIRST + SECOND
    assert Record.read(tmp_path / "none.json") == Record()


def test_saving_adds_to_the_record_or_starts_over_and_writes_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, page = tmp_path / "record.json", tmp_path / "recovery.md"
    monkeypatch.setattr(recoveries, "PAGE", page)
    monkeypatch.setattr(record, "SAVED", saved)
    result = Result({"trials": 1}, [Trial(KILLED, True, 2.0, 0)])
    recoveries.keep_tried(result, 3600)
    recoveries.keep_tried(result, 3600)
    assert f"| {KILLED} | 2 | 2 | 2 s | 0 |" in page.read_text()
    assert "2.0 hours: 2 trials." in page.read_text()
    assert recoveries.table(recoveries.kept()) in page.read_text()
    recoveries.keep_tried(result, 3600, start_over=True)
    assert f"| {KILLED} | 1 | 1 | 2 s | 0 |" in page.read_text()
