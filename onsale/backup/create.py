"""Writes a backup, or the smaller snapshot of seat maps and configuration, while the suite sells."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from onsale.backup.databases import ORDER, Snapshot, consistent_snapshots, tables_of
from onsale.backup.folder import NAME, new_backup
from onsale.backup.manifest import Manifest, SchemaEntry, SequenceEntry, TableEntry
from onsale.backup.table_copy import copy_file, copy_out, csv_out, quoted
from shared import VERSION
from shared.postgres.schema_version import REACHED

Report = Callable[[str], None]
SEQUENCES = "SELECT sequencename::text FROM pg_sequences WHERE schemaname = $1 ORDER BY 1"
SNAPSHOT_QUERIES: Mapping[str, tuple[str, ...]] = {
    "queue": ("room", "lane", "audit_log"),
    "inventory": ("event", "section", "seat", "allotment", "allotment_ga", "audit_log"),
    "orders": ("event", "event_price", "promo_code", "background_share", "audit_log"),
}


async def take_backup(urls: Mapping[str, str], files: Mapping[str, Path], place: Path, *, report: Report) -> Path:
    """Writes a backup of all tables and of `files` under these names; its folder."""
    began_at = datetime.now(UTC)
    with new_backup(place, began_at) as folder:
        async with consistent_snapshots(urls) as snapshots:
            schemas = [await _copy_schema(service, snapshots[service], folder, report) for service in ORDER]
        entry = [copy_file(path, folder, name) for name, path in sorted(files.items())]
        ended_at = datetime.now(UTC)
        Manifest(onsale=VERSION, began_at=began_at, ended_at=ended_at, schemas=schemas, files=entry).write(folder)
    return place / began_at.strftime(NAME)


async def _copy_schema(service: str, snapshot: Snapshot, folder: Path, report: Report) -> SchemaEntry:
    connection, tables = snapshot.connection, []
    for name, columns in await tables_of(connection, service):
        rows_of = partial(connection.copy_from_table, name, schema_name=service, columns=columns)
        entry, rows = await copy_out(rows_of, folder, f"{service}/{name}.copy.gz")
        tables.append(TableEntry(**entry.model_dump(), table=name, columns=columns, rows=rows))
        report(f"{service}.{name}: {rows:,} rows, {entry.bytes:,} bytes")
    sequences = [await _sequence(snapshot, service, row[0]) for row in await connection.fetch(SEQUENCES, service)]
    return SchemaEntry.model_validate({
        "service": service, "revision": await connection.fetchval(REACHED.format(service=service)),
        "postgres": await connection.fetchval("SHOW server_version"), "as_of": snapshot.as_of,
        "tables": tables, "sequences": sequences,
    })  # fmt: skip


async def _sequence(snapshot: Snapshot, service: str, name: str) -> SequenceEntry:
    state = f"SELECT last_value, is_called FROM {quoted(service, name)}"  # noqa: S608 - a quoted name
    row = await snapshot.connection.fetchrow(state)
    return SequenceEntry(name=name, last_value=row["last_value"], is_called=row["is_called"])


async def take_snapshot(urls: Mapping[str, str], place: Path, *, report: Report) -> Path:
    """Writes seat maps and configuration as CSV, without fans' data and secrets; its folder."""
    began_at = datetime.now(UTC)
    with new_backup(place, began_at) as folder:
        async with consistent_snapshots(urls) as snapshots:
            for service, tables in SNAPSHOT_QUERIES.items():
                await _export_tables(service, tables, snapshots[service], folder, report)
    return place / began_at.strftime(NAME)


async def _export_tables(service: str, tables: Sequence[str], snapshot: Snapshot, folder: Path, report: Report) -> None:
    columns = dict(await tables_of(snapshot.connection, service))
    for table in tables:
        path = folder / service / f"{table}.csv.gz"
        rows = await csv_out(snapshot.connection, service, table, columns[table], path)
        report(f"{service}.{table}: {rows:,} rows")
