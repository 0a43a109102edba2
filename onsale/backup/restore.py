"""Restores a backup into empty databases: migrate to its revision, load the rows, migrate to this version.

All rows and sequences of a database are loaded in one transaction, with the tables' own triggers off: their effects are
among the rows. Then the cursors of the outboxes are moved back by an hour, as the event log that had these events may
be lost; consumers recognise an event they already have.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from onsale.backup.create import DATABASE_ERRORS, Report, copy_in, quoted
from onsale.backup.databases import HAS_SCHEMA, ORDER, connected
from onsale.backup.manifest import BadBackup, Manifest, SchemaEntry
from shared.messaging.republish import REPUBLISH_S, set_back_statement
from shared.postgres import migrations
from shared.postgres.schema_version import revisions
from shared.redis.client import REDIS_AWAY, connect

RUNNING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'onsale-%'"
)


def read_manifest(folder: Path) -> Manifest:
    """The manifest, after every file was checked. Raises `BadBackup` when the backup cannot be restored."""
    manifest = Manifest.read(folder)
    if missing := set(ORDER) - {schema.service for schema in manifest.schemas}:
        raise BadBackup(f"{folder} lacks the tables of {', '.join(sorted(missing))}.")
    for schema in manifest.schemas:
        if schema.revision not in revisions(schema.service):
            raise BadBackup(
                f"{folder} was written by version {manifest.onsale}: its tables of {schema.service} are at "
                f"{schema.revision}, which this version does not know. Restore it with that version or a newer one."
            )
    manifest.require_complete(folder)
    return manifest


async def require_empty_databases(urls: Mapping[str, str], redis_url: str | None) -> None:
    """Raises `BadBackup` unless the databases and Redis are empty and no suite runs on them."""
    for service in ORDER:
        async with connected(urls[service]) as connection:
            if await connection.fetchval(RUNNING):
                raise BadBackup("A suite runs on this database: stop it first.")
            if await connection.fetchval(HAS_SCHEMA, service):
                raise BadBackup(f"This database has tables of {service} already: a backup goes into an empty one.")
    if redis_url:
        await require_empty_redis(redis_url)


async def require_empty_redis(redis_url: str) -> None:
    """Raises `BadBackup` unless Redis is empty: the services would trust what it holds of another time."""
    try:
        redis = connect(redis_url)
        found = await redis.dbsize()
        await redis.aclose()
    except (*REDIS_AWAY, ValueError) as unreachable:
        raise BadBackup(f"The Redis in ONSALE_REDIS_URL cannot be reached: {unreachable}.") from unreachable
    if found:
        raise BadBackup("The Redis in ONSALE_REDIS_URL is not empty. It is rebuilt from PostgreSQL: empty it first.")


async def load_databases(manifest: Manifest, folder: Path, urls: Mapping[str, str], *, report: Report) -> None:
    """Loads all tables. If that fails, the databases are empty again."""
    try:
        await _load_schemas(manifest, folder, urls, report)
    except BaseException:
        await _drop_schemas(urls)
        raise


async def _load_schemas(manifest: Manifest, folder: Path, urls: Mapping[str, str], report: Report) -> None:
    """Each database in one transaction."""
    for schema in manifest.schemas:
        await migrations.upgrade(urls[schema.service], schema.service, schema.revision)
    by_url: dict[str, list[SchemaEntry]] = {}
    for schema in manifest.schemas:
        by_url.setdefault(urls[schema.service], []).append(schema)
    for url, schemas in by_url.items():
        async with connected(url) as connection, connection.transaction():
            for schema in schemas:
                await _load_schema(connection, schema, folder, report)
    for schema in manifest.schemas:
        url = urls[schema.service]
        await migrations.upgrade(url, schema.service)
        async with connected(url) as connection:
            await connection.execute(set_back_statement(schema.service, REPUBLISH_S))


async def _drop_schemas(urls: Mapping[str, str]) -> None:
    """Drops what was loaded in part, unless a suite has begun to use it. What failed first is what is reported."""
    for service in ORDER:
        with suppress(*DATABASE_ERRORS):
            async with connected(urls[service]) as connection:
                if not await connection.fetchval(RUNNING):
                    await connection.execute(f"DROP SCHEMA IF EXISTS {quoted(service)} CASCADE")


async def _load_schema(connection: Any, schema: SchemaEntry, folder: Path, report: Report) -> None:
    names = [quoted(schema.service, entry.table) for entry in schema.tables]
    await _set_triggers(connection, names, "DISABLE")
    await connection.execute(f"TRUNCATE {', '.join(names)}")  # a migration may have inserted rows
    for entry in schema.tables:
        rows = await copy_in(connection, schema.service, entry.table, entry.columns, folder / entry.file)
        if rows != entry.rows:
            raise BadBackup(f"{folder / entry.file} has {rows:,} rows, not {entry.rows:,} as the manifest says.")
        report(f"{schema.service}.{entry.table}: {rows:,} rows")
    for sequence in schema.sequences:
        moved = "SELECT setval($1::regclass, $2, $3)"
        name = quoted(schema.service, sequence.name)
        await connection.execute(moved, name, sequence.last_value, sequence.is_called)
    await _set_triggers(connection, names, "ENABLE")


async def _set_triggers(connection: Any, tables: Sequence[str], verb: str) -> None:
    """Enables or disables the tables' own triggers; those of foreign keys stay on."""
    for table in tables:
        await connection.execute(f"ALTER TABLE {table} {verb} TRIGGER USER")
