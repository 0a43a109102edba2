"""One row in every table of a released version, and what of it is missing after the upgrade; of orders see
`carried_orders`.

Values are made from the names of their columns, so a value that arrives nowhere names what was lost.
"""

import asyncio
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg

from onsale.local.engines import with_driver
from proof.upgrades import carried_orders
from proof.upgrades.history import unpacked
from shared.postgres.migrations import current_revision_at, upgrade
from shared.postgres.schema_version import revisions

MIGRATE = "import asyncio, sys; from shared.postgres.migrations import upgrade; asyncio.run(upgrade(*sys.argv[1:]))"
COLUMNS = """
    SELECT c.relname AS table, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND c.relname <> 'alembic_version' AND c.relname NOT LIKE 'pgqueuer%'
        AND NOT (c.relnamespace::regnamespace::text = 'orders' AND c.relname = ANY($2))
    ORDER BY c.oid, a.attnum"""
SPECIAL = {  # what a CHECK demands; None: no value
    ("admission", "state"): "claimed", ("room", "state"): "open", ("place", "end_reason"): "left",
    ("seat", "status"): "sold", ("seat", "allotment_id"): None, ("mail", "reservation_id"): None,
    ("access_code", "uses"): 0, ("section", "seats_remaining"): 0,
    ("money_entry", "kind"): "charge", ("oversell", "status"): "waiting", ("event_refund", "status"): "running",
    ("promo_code", "percent"): None, ("approval", "status"): "pending",
    ("background_share", "background_percent"): 50.5,
}  # fmt: skip
Values = Mapping[str, list[set[str]]]  # by table, the values of each row as text


def environ_of(tree: Path) -> Mapping[str, str]:
    """The environment in which Python runs the code of another commit."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    return kept | {"PYTHONPATH": str(tree)}


def value(table: str, column: str, kind: str) -> Any:
    if (table, column) in SPECIAL:
        return SPECIAL[table, column]
    number = zlib.crc32(column.encode()) % 1000 + 2
    by_type: dict[str, Any] = {
        "text": column, "bigint": number, "integer": number, "smallint": number, "boolean": True,
        "double precision": number + 0.5, "real": number + 0.5, "numeric": number, "jsonb": f'{{"{column}": 1}}',
        "timestamp with time zone": f"2026-11-21 10:00:00.{number:06}+00", "bytea": f"\\x{number:06x}",
        "uuid": f"00000000-0000-0000-0000-{number:012}", "text[]": f"{{{column}}}", "integer[]": f"{{{number}}}",
    }  # fmt: skip
    return by_type[kind.partition("(")[0]]


async def fill(connection: asyncpg.Connection, schema: str) -> int:
    """A row in every table, whatever its triggers and foreign keys say; the number of tables."""
    tables: dict[str, list[tuple[str, Any]]] = {}
    for row in await connection.fetch(COLUMNS, schema, carried_orders.TABLES):
        found = value(row["table"], row["name"], row["type"])
        literal = "NULL" if found is None else "'" + str(found) + "'"
        tables.setdefault(row["table"], []).append((row["name"], f"{literal}::{row['type']}"))
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        for table, values in tables.items():
            names, literals = ", ".join(f'"{name}"' for name, _ in values), ", ".join(each for _, each in values)
            await connection.execute(f'INSERT INTO {schema}."{table}" ({names}) SELECT {literals}')
    return len(tables)


async def values_of(connection: asyncpg.Connection, schema: str) -> Values:
    tables = dict.fromkeys(row["table"] for row in await connection.fetch(COLUMNS, schema, carried_orders.TABLES))
    query = 'SELECT ARRAY(SELECT value FROM jsonb_each_text(to_jsonb(t)) WHERE value IS NOT NULL) FROM {}."{}" t'
    return {
        table: [set(values) for (values,) in await connection.fetch(query.format(schema, table))] for table in tables
    }


def _parts(row: set[str]) -> set[str]:
    """Its values, and those inside its documents."""
    documents = [json.loads(value) for value in row if value.startswith("{")]
    return row | {str(value) for document in documents for value in document.values()}


def lost(before: Values, after: Values) -> list[str]:
    """What rows had before and no row has after, by table: `order: reference, version`."""
    now = [_parts(row) for rows in after.values() for row in rows]
    missing = []
    for table, rows in before.items():
        for row in rows:
            least = min((row - other for other in now), key=len, default=row)
            if least:
                missing.append(f"{table}: {', '.join(sorted(least))}")
    return missing


async def open_schema(commit: str, service: str, postgres_url: str, folder: Path) -> list[str]:
    """What is wrong after the schema that this commit makes, with a row in every table, was upgraded to today's."""
    tree = await asyncio.to_thread(unpacked, commit, folder)
    command = [sys.executable, "-P", "-c", MIGRATE, postgres_url, service]
    made = await asyncio.to_thread(
        subprocess.run, command, cwd=tree, env=environ_of(tree), capture_output=True, text=True, check=False
    )
    if made.returncode:
        return [f"its own migrations fail today: {made.stderr.strip().splitlines()[-1]}"]
    connection = await asyncpg.connect(with_driver(postgres_url))
    try:
        await fill(connection, service)
        before = await values_of(connection, service)
        wrong = await (
            _carry_orders(connection, postgres_url) if service == "orders" else _upgrade(postgres_url, service)
        )
        if await current_revision_at(postgres_url, service) != revisions(service)[-1]:
            return ["it is not at the last revision after `onsale migrate`"]
        return wrong + [f"rows lack values: {row}" for row in lost(before, await values_of(connection, service))]
    finally:
        await connection.execute(f"DROP SCHEMA IF EXISTS {service} CASCADE")
        await connection.close()


async def _upgrade(postgres_url: str, service: str) -> list[str]:
    await upgrade(postgres_url, service)
    return []


async def _carry_orders(connection: asyncpg.Connection, postgres_url: str) -> list[str]:
    """Beside a row in each of its other tables, a night of orders."""
    await carried_orders.fill(connection)
    before = await carried_orders.read(connection, now=False)
    wrong = await carried_orders.carry(connection, postgres_url)
    return wrong + await carried_orders.differences(connection, before, postgres_url)
