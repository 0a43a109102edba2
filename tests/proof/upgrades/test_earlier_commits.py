"""What the proof of upgrades says of earlier commits is true: two are opened, a lost value and an unknown table are
reported, and a checkout without history counts nothing.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from shared.postgres import earlier_schema
from tests.proof.part import Budget
from tests.proof.upgrades import run as proof
from tests.proof.upgrades.earlier_rows import fill, lost
from tests.proof.upgrades.history import (
    NO_HISTORY,
    commit_before,
    earlier_schemas,
    has_history,
    whole_commits,
)
from tests.proof.upgrades.opening import OPENED, open_schema
from tests.support.engines.engines import in_database, sql

needs_history = pytest.mark.skipif(not has_history(), reason=NO_HISTORY)
ROW = "CREATE TABLE {}.t (reference text, customer_key text, version bigint)"
databases = itertools.count(1)


@pytest.fixture
async def empty_url(engines: Engines) -> AsyncIterator[str]:
    """The URL of a database without tables."""
    name = f"earlier_{next(databases)}"
    await sql(engines, f"create database {name}")
    yield in_database(engines, name)
    await sql(engines, f"drop database {name} with (force)")


@needs_history
def test_every_commit_that_changed_a_schema_is_found() -> None:
    found = earlier_schemas()
    assert {each.service for each in found} == {"queue", "inventory", "orders", "console"}
    assert len(found) >= 80
    assert len({(each.service, each.tree) for each in found}) == len(found)
    assert len(whole_commits()) >= 60
    assert len(commit_before()) == 40


@needs_history
@pytest.mark.parametrize("service", ["queue", "inventory"])
async def test_the_first_schema_ever_is_opened(service: str, empty_url: str, tmp_path: Path) -> None:
    schema = next(each for each in earlier_schemas() if each.service == service)
    assert await open_schema(schema, empty_url, tmp_path) == OPENED


@needs_history
async def test_a_table_whose_name_is_forgotten_is_refused_clearly(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_schema, "_changes", lambda service: {})
    schema = next(each for each in earlier_schemas() if each.service == "queue")
    outcome = await open_schema(schema, empty_url, tmp_path)
    assert outcome.startswith("refused clearly: The schema queue has tables that no commit had: room_change.")


async def test_a_value_that_is_lost_on_the_way_is_reported(empty_url: str) -> None:
    connection = await asyncpg.connect(with_driver(empty_url))
    try:
        for schema in ("before", "after"):
            await connection.execute(f"CREATE SCHEMA {schema}; {ROW.format(schema)}")
            await fill(connection, schema)
        assert await lost(connection, "before", "after") == []
        await connection.execute("UPDATE after.t SET customer_key = NULL")
        assert await lost(connection, "before", "after") == ["t: customer_key"]
        await connection.execute("DELETE FROM after.t")
        assert "customer_key, reference" in (await lost(connection, "before", "after"))[0]
    finally:
        await connection.close()


def test_a_checkout_without_history_counts_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "has_history", lambda: False)
    result = proof.run(Budget(20, 1))
    assert set(result.counts.values()) == {0}
    assert NO_HISTORY in capsys.readouterr().out
