"""A small, a middle and a large database, each before and after `ANALYZE` of its tables.

Without statistics two indexes may seem equally good, and which is taken depends on the size at that moment.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from tests.support.engines.engines import in_database, run_in_thread, sql

SMALL, MIDDLE, LARGE = SIZES = 1_000, 20_000, 50_000
SERVICES = ("inventory", "queue", "orders")
State = tuple[int, bool]
STATES: list[State] = [(size, analyzed) for size in SIZES for analyzed in (False, True)]
WAS_LIVE: Mapping[str, tuple[str, Mapping[str, str]]] = {  # by table: its key, and values that a row once had
    'orders."order"': ("reference", {"status": "'pending'"}),
    "orders.open_order": ("reference", {"owner": "'me'", "woken": "true"}),
    "orders.webhook_inbox": ("provider, webhook_id", {"applied_at": "NULL"}),
    "orders.webhook_delivery": ("endpoint_id, message_id", {"due_at": "now()", "lease": "'me'"}),
    "orders.mail": ("mail_key", {"sent_at": "NULL"}),
    "queue.admission": ("event_id, epoch, lane, join_seq, call", {"state": "'called'"}),
    "inventory.reservation": ("reservation_id", {"status": "'pending_payment'"}),
}


@pytest.fixture(scope="session")
def databases(engines: Engines, migrated: str) -> Iterator[dict[State, str]]:
    """Addresses by size and by whether the tables were analyzed. Autovacuum is off, so that this does not change."""
    names = {(size, analyzed): f"plans_{size}_{analyzed}".lower() for size, analyzed in STATES}
    run_in_thread(_create_databases(engines, migrated, names))
    yield {state: in_database(engines, name) for state, name in names.items()}
    for name in names.values():
        run_in_thread(sql(engines, f"drop database {name} with (force)"))


async def _create_databases(engines: Engines, migrated: str, names: dict[State, str]) -> None:
    for size in SIZES:
        plain, analyzed = names[size, False], names[size, True]
        await sql(engines, f"create database {plain} template {migrated}")
        await load(in_database(engines, plain), size)
        await sql(engines, f"create database {analyzed} template {plain}")
        connection = await asyncpg.connect(with_driver(in_database(engines, analyzed)))
        await connection.execute("ANALYZE")
        await connection.close()


async def load(url: str, size: int) -> None:
    """Fills a database of this size, whose tables are not analyzed."""
    connection = await asyncpg.connect(with_driver(url))
    statements = await connection.fetch(
        "SELECT format('ALTER TABLE %I.%I SET (autovacuum_enabled = off)', schemaname, tablename) AS statement "
        "FROM pg_tables WHERE schemaname = ANY($1)",
        list(SERVICES),
    )
    await connection.execute(";".join(row["statement"] for row in statements))
    for service in SERVICES:
        content = await asyncio.to_thread(Path(__file__).with_name(f"{service}.sql").read_text)
        await connection.execute(content.format(size=size))
        await connection.execute("DROP TABLE IF EXISTS sample")
    await _age(connection)
    await connection.close()


async def _age(connection: asyncpg.Connection) -> None:
    """Lets every row have been live once. Its entries in the indexes of live rows stay until a vacuum, which comes the
    later the larger a table is.
    """
    await connection.execute("SET session_replication_role = replica")  # without triggers
    for table, (key, live) in WAS_LIVE.items():
        columns = ", ".join(live)
        await connection.execute(f"CREATE TEMP TABLE was AS SELECT {key}, {columns} FROM {table}")
        await connection.execute(
            f"UPDATE {table} SET " + ", ".join(f"{name} = {value}" for name, value in live.items())
        )
        back = ", ".join(f"{name} = was.{name}" for name in live)
        same = " AND ".join(f"t.{name} = was.{name}" for name in key.split(", "))
        await connection.execute(f"UPDATE {table} t SET {back} FROM was WHERE {same}")
        await connection.execute("DROP TABLE was")
    await connection.execute("RESET session_replication_role")
