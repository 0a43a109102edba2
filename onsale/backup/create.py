"""Writes a backup, or the smaller snapshot of seat maps and configuration, while the suite sells.

Copies the rows of a table to a compressed file and back with PostgreSQL's COPY, a piece at a time; or to CSV.
"""

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import asyncpg

from onsale.backup.databases import ORDER, Snapshot, consistent_snapshots, tables_of
from onsale.backup.manifest import (
    NAME,
    FileEntry,
    Manifest,
    SchemaEntry,
    SequenceEntry,
    TableEntry,
    new_backup,
    private_file,
)
from shared import VERSION
from shared.postgres.schema_version import REACHED
from shared.report.csv_export import csv_head, csv_lines

LEVEL = 1  # shrinks rows to a fifth; a higher level keeps the snapshot open longer
PAGE_ROWS = 1_000


class _HashedFile:
    """A file that computes its size and hash while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.bytes = file, hashlib.sha256(), 0

    def write(self, part: bytes) -> int:
        self._digest.update(part)
        self.bytes += len(part)
        return self._file.write(part)

    def flush(self) -> None:
        self._file.flush()

    def entry(self, name: str) -> FileEntry:
        return FileEntry(file=name, bytes=self.bytes, sha256=self._digest.hexdigest())


async def copy_out(rows_of: Callable[..., Awaitable[str]], folder: Path, name: str) -> tuple[FileEntry, int]:
    """Writes what asyncpg's `rows_of(output=…)` copies to `folder / name`; its entry and the number of rows."""
    with private_file(folder / name) as file:
        hashed = _HashedFile(file)
        with _packed(hashed) as packed:

            async def write(part: bytes) -> None:
                packed.write(part)

            status = await rows_of(output=write)
    return hashed.entry(name), _rows(status)


async def csv_out(connection: Any, schema: str, table: str, columns: list[str], path: Path) -> int:
    """Writes a table as a compressed CSV file for people, in the order of its first two columns; the number of rows."""
    cells = ", ".join(f"{quoted(column)}::text" for column in columns)
    query = f"SELECT {cells} FROM {quoted(schema, table)} ORDER BY {', '.join(map(quoted, columns[:2]))}"  # noqa: S608
    rows = 0
    with private_file(path) as file, _packed(file) as packed:
        packed.write(csv_head(columns))
        cursor = await connection.cursor(query)
        while page := await cursor.fetch(PAGE_ROWS):
            packed.write(csv_lines(page))
            rows += len(page)
    return rows


async def copy_in(connection: Any, schema: str, table: str, columns: list[str], path: Path) -> int:
    """Loads the rows of a file; their number. Raises asyncpg's errors when the file does not fit the table."""
    with gzip.open(path, "rb") as unpacked:
        status = await connection.copy_to_table(table, schema_name=schema, columns=columns, source=unpacked)
    return _rows(status)


def copy_file(source: Path, folder: Path, name: str) -> FileEntry:
    """Copies a file unchanged."""
    with private_file(folder / name) as file:
        hashed = _HashedFile(file)
        hashed.write(source.read_bytes())
    return hashed.entry(name)


def _packed(file: Any) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0)


def quoted(*names: str) -> str:
    """Names quoted for SQL, joined by dots."""
    escaped = (name.replace('"', '""') for name in names)
    return ".".join(f'"{name}"' for name in escaped)


def _rows(status: str) -> int:
    return int(status.removeprefix("COPY "))


DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


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
