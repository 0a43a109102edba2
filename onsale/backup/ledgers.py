"""Where each service's ledger is, and a view of one that stands still.

A database that several services share is read in one transaction. Of several, orders' moment comes first: whatever it
had confirmed by then is sold in an inventory that is a little younger; what the others lack, they ask each other for.
"""

import graphlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from onsale.backup.folder import BadBackup
from onsale.local.engines import InUse, read_engines_file, start_engines
from shared.postgres.connect import Servers
from shared.postgres.isolation import WrongDatabase
from shared.runtime.secrets_dir import postgres_urls

ORDER = ("orders", "inventory", "queue")
CONNECT_S = 10
LOCK_WAIT_S = 10
OURS = "backup of onsale"
TABLES = """
    SELECT c.relname::text AS name,
        (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns,
        (SELECT array_agg(DISTINCT r.relname::text) FROM pg_constraint k JOIN pg_class r ON r.oid = k.confrelid
         WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid <> c.oid) AS refers_to
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname <> 'alembic_version' ORDER BY 1"""
HAS_SCHEMA = "SELECT to_regclass($1 || '.alembic_version') IS NOT NULL"


@dataclass(frozen=True)
class Still:
    """A connection whose every statement sees the same moment."""

    connection: Any
    as_of: datetime


@asynccontextmanager
async def running_ledgers(data_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """Each service's plain address: as the settings say, else of the suite that runs on the data directory, else of its
    PostgreSQL, started for as long as this lasts.
    """
    if all_named(environ):
        yield postgres_urls(environ)
        return
    if not (data_dir / "engines" / "postgres" / "data").exists():
        raise BadBackup(f"Nothing has run in {data_dir} yet, and ONSALE_POSTGRES_URL is not set.")
    try:
        engines = await start_engines(data_dir, environ=environ)
    except InUse:
        yield postgres_urls(environ, read_engines_file(data_dir).postgres_url)
        return
    try:
        yield postgres_urls(environ, engines.engines.postgres_url)
    finally:
        await engines.stop()


def all_named(environ: Mapping[str, str]) -> bool:
    """Whether settings say where every ledger is, so that none is ours to start."""
    try:
        postgres_urls(environ)
    except WrongDatabase:
        return False
    return True


@asynccontextmanager
async def standing_still(urls: Mapping[str, str]) -> AsyncIterator[dict[str, Still]]:
    """Every service's ledger as of one moment per database, while no migration runs."""
    by_url: dict[str, list[str]] = {}
    for service in ORDER:
        by_url.setdefault(urls[service], []).append(service)
    async with AsyncExitStack() as stack:
        still: dict[str, Still] = {}
        for url, services in by_url.items():
            moment = await stack.enter_async_context(_one_moment(url, services))
            still |= dict.fromkeys(services, moment)
        yield still


@asynccontextmanager
async def _one_moment(url: str, services: Sequence[str]) -> AsyncIterator[Still]:
    async with connected(url) as connection:
        for service in services:
            await _no_migration(connection, service)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield Still(connection, await connection.fetchval("SELECT clock_timestamp()"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection of our own that may take its time."""
    connection = await Servers(url, connect_timeout_s=CONNECT_S).connect(name=OURS)
    try:
        await connection.execute(
            f"SET lock_timeout = '{LOCK_WAIT_S}s'; SET statement_timeout = 0; SET timezone = 'UTC';"
            "SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0"
        )
        yield connection
    finally:
        await connection.close(timeout=CONNECT_S)


async def _no_migration(connection: Any, service: str) -> None:
    """Takes the lock of migrations, shared, until the connection ends: before the snapshot, or it would see less."""
    try:
        await connection.execute("SELECT pg_advisory_lock_shared(hashtext('onsale migrate ' || $1))", service)
    except asyncpg.LockNotAvailableError as busy:
        raise BadBackup(f"A migration of {service} is running; try again when it has ended.") from busy
    if not await connection.fetchval(HAS_SCHEMA, service):
        raise BadBackup(f"This database has no tables of {service}: nothing to keep. Was `onsale migrate` ever run?")


async def tables_of(connection: Any, service: str) -> list[tuple[str, list[str]]]:
    """Name and columns of every table, each after those it refers to."""
    rows = {row["name"]: row for row in await connection.fetch(TABLES, service)}
    sorter = graphlib.TopologicalSorter({name: row["refers_to"] or [] for name, row in rows.items()})
    return [(name, list(rows[name]["columns"])) for name in sorter.static_order() if name in rows]
