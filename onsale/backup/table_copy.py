"""Copies the rows of a table to a compressed file and back with PostgreSQL's COPY, a piece at a time."""

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import asyncpg

from onsale.backup.folder import private_file
from onsale.backup.manifest import FileEntry

LEVEL = 1  # shrinks rows to a fifth; a higher level keeps the snapshot open longer


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
        with gzip.GzipFile(filename="", fileobj=hashed, mode="wb", compresslevel=LEVEL, mtime=0) as packed:

            async def write(part: bytes) -> None:
                packed.write(part)

            status = await rows_of(output=write)
    return hashed.entry(name), _rows(status)


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


def quoted(*names: str) -> str:
    """Names quoted for SQL, joined by dots."""
    escaped = (name.replace('"', '""') for name in names)
    return ".".join(f'"{name}"' for name in escaped)


def _rows(status: str) -> int:
    return int(status.removeprefix("COPY "))


DATABASE_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
