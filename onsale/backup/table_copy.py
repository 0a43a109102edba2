"""Copies the rows of a table to a compressed file and back with PostgreSQL's COPY, a piece at a time; or to CSV."""

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import asyncpg

from onsale.backup.folder import private_file
from onsale.backup.manifest import FileEntry
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
