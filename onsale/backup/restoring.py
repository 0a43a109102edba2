"""Brings a backup back into empty databases: migrate to where it was, load, migrate to where this version is.

Rows and sequences of one database go in by one transaction, with the service's own triggers off: what they did is among
the rows. News of the last hour is told again, as the log that had it is gone; whoever hears it twice knows it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from onsale.backup.copying import copy_in, quoted
from onsale.backup.folder import BadBackup
from onsale.backup.ledgers import HAS_SCHEMA, ORDER, connected
from onsale.backup.manifest import KeptSchema, Manifest
from onsale.backup.taking import Say
from shared.postgres import migrations
from shared.postgres.schema_version import revisions
from shared.redis.client import REDIS_AWAY, connect

TOLD_AGAIN = timedelta(hours=1)
RUNNING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'onsale-%'"
)


def readable(folder: Path) -> Manifest:
    """What the backup says, every file of it seen to be whole. Raises `BadBackup` for one we cannot bring back."""
    manifest = Manifest.read(folder)
    if missing := set(ORDER) - {schema.service for schema in manifest.schemas}:
        raise BadBackup(f"{folder} lacks the ledger of {', '.join(sorted(missing))}.")
    for schema in manifest.schemas:
        if schema.revision not in revisions(schema.service):
            raise BadBackup(
                f"{folder} was written by version {manifest.onsale}: its tables of {schema.service} are at "
                f"{schema.revision}, which this version does not know. Restore it with that version or a newer one."
            )
    manifest.require_whole(folder)
    return manifest


async def require_room(urls: Mapping[str, str], redis_url: str | None) -> None:
    """Nothing is there yet and nothing runs. Raises `BadBackup`."""
    for service in ORDER:
        async with connected(urls[service]) as connection:
            if await connection.fetchval(RUNNING):
                raise BadBackup("A suite runs on this database: stop it first.")
            if await connection.fetchval(HAS_SCHEMA, service):
                raise BadBackup(f"This database has tables of {service} already: a backup goes into an empty one.")
    if redis_url:
        await require_empty(redis_url)


async def require_empty(redis_url: str) -> None:
    """An engine that remembers another time would be believed where it must not be. Raises `BadBackup`."""
    try:
        engine = connect(redis_url)
        found = await engine.dbsize()
        await engine.aclose()
    except (*REDIS_AWAY, ValueError) as away:
        raise BadBackup(f"The Redis in ONSALE_REDIS_URL cannot be asked whether it is empty: {away}.") from away
    if found:
        raise BadBackup("The Redis in ONSALE_REDIS_URL is not empty. It is filled from the ledger: empty it first.")


async def bring_back(manifest: Manifest, folder: Path, urls: Mapping[str, str], *, say: Say) -> None:
    """Loads every ledger; each database's in one transaction."""
    for schema in manifest.schemas:
        await migrations.upgrade(urls[schema.service], schema.service, schema.revision)
    by_url: dict[str, list[KeptSchema]] = {}
    for schema in manifest.schemas:
        by_url.setdefault(urls[schema.service], []).append(schema)
    for url, schemas in by_url.items():
        async with connected(url) as connection, connection.transaction():
            for schema in schemas:
                await _load(connection, schema, folder, say)
    for schema in manifest.schemas:
        await migrations.upgrade(urls[schema.service], schema.service)


async def _load(connection: Any, schema: KeptSchema, folder: Path, say: Say) -> None:
    names = [quoted(schema.service, kept.table) for kept in schema.tables]
    await _triggers(connection, names, "DISABLE")
    await connection.execute(f"TRUNCATE {', '.join(names)}")  # a migration may have put rows there
    for kept in schema.tables:
        rows = await copy_in(connection, schema.service, kept.table, kept.columns, folder / kept.file)
        if rows != kept.rows:
            raise BadBackup(f"{folder / kept.file} has {rows:,} rows, not {kept.rows:,} as the manifest says.")
        say(f"{schema.service}.{kept.table}: {rows:,} rows")
    for sequence in schema.sequences:
        moved = "SELECT setval($1::regclass, $2, $3)"
        name = quoted(schema.service, sequence.name)
        await connection.execute(moved, name, sequence.last_value, sequence.is_called)
    outbox = quoted(schema.service, "outbox")
    again = f"UPDATE {outbox} SET published_at = NULL WHERE published_at > $1"  # noqa: S608 - a quoted name
    await connection.execute(again, schema.as_of - TOLD_AGAIN)
    await _triggers(connection, names, "ENABLE")


async def _triggers(connection: Any, tables: Sequence[str], verb: str) -> None:
    """The schema's own; those that keep foreign keys stay on."""
    for table in tables:
        await connection.execute(f"ALTER TABLE {table} {verb} TRIGGER USER")
