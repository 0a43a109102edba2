"""Each service has a database of its own, one of them on another server, and uses no other."""

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from onsale.local.binaries import find_postgres
from onsale.local.engines import Engines, with_driver
from onsale.local.ports import HOST
from proof.drills.fleet import Fleet, migrate
from proof.drills.postgres_pair import Postgres, address
from proof.drills.sale import on_sale
from shared.routes import SERVICES_WITH_TABLES
from tests.support.engines.engines import fast_directory, in_database, sql

SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname IN ('queue', 'inventory', 'orders', 'console')"
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/nowhere"


@pytest.fixture
async def database_urls(engines: Engines, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The settings with each service's database: three on one server, orders on another."""
    with tempfile.TemporaryDirectory(prefix="onsale-own-", dir=fast_directory()) as folder:
        other_server = Postgres(Path(folder) / "other", find_postgres(os.environ, major=None))
        try:
            await other_server.create()
            await other_server.query("CREATE DATABASE own_orders", database="postgres")
            for service in ("queue", "inventory", "console"):
                await sql(engines, f"create database own_{service}")
            yield {
                "QUEUE_POSTGRES_URL": in_database(engines, "own_queue"),
                "INVENTORY_POSTGRES_URL": in_database(engines, "own_inventory"),
                "CONSOLE_POSTGRES_URL": in_database(engines, "own_console"),
                "ORDERS_POSTGRES_URL": address(f"{HOST}:{other_server.port}", "own_orders"),
            }
        finally:
            other_server.lose()


async def test_a_fan_buys_with_four_databases_on_two_servers(database_urls: dict[str, str], tmp_path: Path) -> None:
    await migrate(database_urls)
    for service in SERVICES_WITH_TABLES:
        connection = await asyncpg.connect(with_driver(database_urls[f"{service.upper()}_POSTGRES_URL"]))
        assert [row["nspname"] for row in await connection.fetch(SCHEMAS)] == [service]
        await connection.close()
    fleet = Fleet(tmp_path / "data", UNREACHABLE, environ=database_urls).start()
    try:
        async with on_sale(fleet.wait_until_ready()) as sale:
            assert (await sale.buy({"seats": ["A-1-1"]}))["status"] == "confirmed"
    finally:
        fleet.end()
