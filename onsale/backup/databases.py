"""Addresses of the services' databases, and consistent snapshots of them.

A database that several services share is read in one transaction. Of several databases, that of orders is read first:
what it had confirmed by then is sold in the slightly later snapshot of inventory. The services repair the rest by
asking each other.
"""

import graphlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from onsale.backup.manifest import BadBackup
from onsale.data_dir import read_engines_file
from onsale.local.engines import DataDirInUse, start_databases
from shared.errors.database import WrongDatabase
from shared.postgres.engine import Servers, raw_statement
from shared.process.secrets_dir import postgres_urls

ORDER = ("orders", "inventory", "queue")
CONNECT_S = 10
LOCK_WAIT_S = 10
OUR_TABLES = "backup of onsale"
TABLES = raw_statement(__package__, "tables")
HAS_SCHEMA = "SELECT to_regclass($1 || '.alembic_version') IS NOT NULL"


@dataclass(frozen=True)
class Snapshot:
    """A connection whose statements all see the database as of one moment."""

    connection: Any
    as_of: datetime


@asynccontextmanager
async def running_databases(data_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """Each service's plain database URL: from the settings, else of the suite that runs on the data directory, else of
    its PostgreSQL, which is started for this context.
    """
    if all_databases_named(environ):
        yield postgres_urls(environ)
        return
    if not (data_dir / "engines" / "postgres" / "data").exists():
        raise BadBackup(f"Nothing has run in {data_dir} yet, and ONSALE_POSTGRES_URL is not set.")
    try:
        databases = await start_databases(data_dir, environ=environ)
    except DataDirInUse:
        yield postgres_urls(environ, read_engines_file(data_dir).postgres_url)
        return
    try:
        yield postgres_urls(environ, databases.addresses.postgres_url)
    finally:
        await databases.stop()


def all_databases_named(environ: Mapping[str, str]) -> bool:
    """Whether the settings name every service's database, so that none must be started."""
    try:
        postgres_urls(environ)
    except WrongDatabase:
        return False
    return True


@asynccontextmanager
async def consistent_snapshots(urls: Mapping[str, str]) -> AsyncIterator[dict[str, Snapshot]]:
    """A snapshot for every service, one per database, while no migration runs."""
    by_url: dict[str, list[str]] = {}
    for service in ORDER:
        by_url.setdefault(urls[service], []).append(service)
    async with AsyncExitStack() as stack:
        snapshots: dict[str, Snapshot] = {}
        for url, services in by_url.items():
            snapshot = await stack.enter_async_context(_snapshot_of(url, services))
            snapshots |= dict.fromkeys(services, snapshot)
        yield snapshots


@asynccontextmanager
async def _snapshot_of(url: str, services: Sequence[str]) -> AsyncIterator[Snapshot]:
    async with connected(url) as connection:
        for service in services:
            await _require_no_migration(connection, service)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield Snapshot(connection, await connection.fetchval("SELECT clock_timestamp()"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection without statement and idle timeouts."""
    connection = await Servers(url, connect_timeout_s=CONNECT_S).connect(name=OUR_TABLES)
    try:
        await connection.execute(
            f"SET lock_timeout = '{LOCK_WAIT_S}s'; SET statement_timeout = 0; SET timezone = 'UTC';"
            "SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0"
        )
        yield connection
    finally:
        await connection.close(timeout=CONNECT_S)


async def _require_no_migration(connection: Any, service: str) -> None:
    """Takes the migrations' lock, shared, until the connection ends. Before the snapshot: it must see all tables."""
    try:
        await connection.execute("SELECT pg_advisory_lock_shared(hashtext('onsale migrate ' || $1))", service)
    except asyncpg.LockNotAvailableError as busy:
        raise BadBackup(f"A migration of {service} is running; try again when it has ended.") from busy
    if not await connection.fetchval(HAS_SCHEMA, service):
        raise BadBackup(f"This database has no tables of {service}: nothing to back up. Was `onsale migrate` ever run?")


async def tables_of(connection: Any, service: str) -> list[tuple[str, list[str]]]:
    """Name and columns of every table, each after those it refers to."""
    rows = {row["name"]: row for row in await connection.fetch(TABLES, service)}
    sorter = graphlib.TopologicalSorter({name: row["refers_to"] or [] for name, row in rows.items()})
    return [(name, list(rows[name]["columns"])) for name in sorter.static_order() if name in rows]
