"""Each service in a database of its own, one of them on another server: nothing is asked of any other's."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from onsale.local.binaries import find_postgres
from onsale.local.engines import Engines, with_driver
from shared.web.routes import SERVICES_WITH_TABLES
from tests.drills.crowd import PatientFan
from tests.drills.fleet import HOST, Fleet
from tests.drills.postgres_pair import Postgres, address
from tests.support.engines.engines import fast_place, in_database, sql

SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname IN ('queue', 'inventory', 'orders')"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"


@pytest.fixture
async def ledgers(engines: Engines, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The address of each service's database, by its variable: two on one server, orders on another."""
    with tempfile.TemporaryDirectory(prefix="onsale-own-", dir=fast_place()) as folder:
        other = Postgres(Path(folder) / "other", find_postgres(os.environ, major=None))
        try:
            await other.create()
            await other.ask("CREATE DATABASE own_orders", database="postgres")
            for service in ("queue", "inventory"):
                await sql(engines, f"create database own_{service}")
            yield {
                "QUEUE_POSTGRES_URL": in_database(engines, "own_queue"),
                "INVENTORY_POSTGRES_URL": in_database(engines, "own_inventory"),
                "ORDERS_POSTGRES_URL": address(f"{HOST}:{other.port}", "own_orders"),
            }
        finally:
            other.lose()


@pytest.mark.drill
async def test_a_sale_over_three_databases_on_two_servers(ledgers: dict[str, str], tmp_path: Path) -> None:
    migrate = [sys.executable, "-P", "-m", "onsale", "migrate"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    run = partial(subprocess.run, migrate, env=clean | ledgers, capture_output=True, text=True, check=False)
    migrated = await asyncio.to_thread(run)
    assert migrated.returncode == 0, migrated.stderr
    for service in SERVICES_WITH_TABLES:
        connection = await asyncpg.connect(with_driver(ledgers[f"{service.upper()}_POSTGRES_URL"]))
        assert [row["nspname"] for row in await connection.fetch(SCHEMAS)] == [service]
        await connection.close()
    fleet = Fleet(tmp_path / "data", NOWHERE, environ=ledgers).start()
    try:
        event_id = await fleet.wait_until_ready().open_event()
        async with fleet.browser() as browser:
            fan = await PatientFan(browser, event_id).come_in()
            order = await fan.buys(seats=["A-1-1"])
        assert order["status"] == "confirmed"
        assert await fleet.audit(event_id) == []
    finally:
        fleet.end()
