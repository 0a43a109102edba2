"""Databases with little and with much in them, each as it was filled and as it is once its tables were counted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from tests.support.engines.engines import in_database, run_apart, sql

SMALL, LARGE = 1_000, 50_000
SERVICES = ("inventory", "queue", "orders")
State = tuple[int, bool]
STATES: list[State] = [(size, counted) for size in (SMALL, LARGE) for counted in (False, True)]


@pytest.fixture(scope="session")
def filled(engines: Engines, migrated: str) -> Iterator[dict[State, str]]:
    """Addresses by size and whether statistics are there; nobody else counts the tables meanwhile."""
    names = {(size, counted): f"plans_{size}_{counted}".lower() for size, counted in STATES}
    run_apart(_fill(engines, migrated, names))
    yield {state: in_database(engines, name) for state, name in names.items()}
    for name in names.values():
        run_apart(sql(engines, f"drop database {name} with (force)"))


async def _fill(engines: Engines, migrated: str, names: dict[State, str]) -> None:
    for size in (SMALL, LARGE):
        plain, counted = names[size, False], names[size, True]
        await sql(engines, f"create database {plain} template {migrated}")
        await _load(in_database(engines, plain), size)
        await sql(engines, f"create database {counted} template {plain}")
        connection = await asyncpg.connect(with_driver(in_database(engines, counted)))
        await connection.execute("ANALYZE")
        await connection.close()


async def _load(url: str, size: int) -> None:
    connection = await asyncpg.connect(with_driver(url))
    tables = await connection.fetch(
        "SELECT format('ALTER TABLE %I.%I SET (autovacuum_enabled = off)', schemaname, tablename) AS off "
        "FROM pg_tables WHERE schemaname = ANY($1)",
        list(SERVICES),
    )
    await connection.execute(";".join(table["off"] for table in tables))
    for service in SERVICES:
        content = await asyncio.to_thread(Path(__file__).with_name(f"{service}.sql").read_text)
        await connection.execute(content.format(size=size))
        await connection.execute("DROP TABLE IF EXISTS made")
    await connection.close()
