"""Rows of one table to a compressed file and back, by PostgreSQL's own COPY; never more than a piece in memory."""

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import asyncpg

from onsale.backup.folder import private_file
from onsale.backup.manifest import Kept

LEVEL = 1  # rows shrink to a fifth at once; more costs time while a snapshot stands open


class _Weighed:
    """A file that knows its size and hash while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.bytes = file, hashlib.sha256(), 0

    def write(self, part: bytes) -> int:
        self._digest.update(part)
        self.bytes += len(part)
        return self._file.write(part)

    def flush(self) -> None:
        self._file.flush()

    def kept(self, name: str) -> Kept:
        return Kept(file=name, bytes=self.bytes, sha256=self._digest.hexdigest())


async def copy_out(rows_of: Callable[..., Awaitable[str]], folder: Path, name: str) -> tuple[Kept, int]:
    """What asyncpg's `rows_of(output=…)` copies, in `folder / name`; how many rows they were."""
    with private_file(folder / name) as file:
        weighed = _Weighed(file)
        with gzip.GzipFile(filename="", fileobj=weighed, mode="wb", compresslevel=LEVEL, mtime=0) as packed:

            async def take(part: bytes) -> None:
                packed.write(part)

            status = await rows_of(output=take)
    return weighed.kept(name), _rows(status)


async def copy_in(connection: Any, schema: str, table: str, columns: list[str], path: Path) -> int:
    """How many rows went in. A file that is no such rows raises asyncpg's errors."""
    with gzip.open(path, "rb") as unpacked:
        status = await connection.copy_to_table(table, schema_name=schema, columns=columns, source=unpacked)
    return _rows(status)


def copy_file(source: Path, folder: Path, name: str) -> Kept:
    """A file as it is."""
    with private_file(folder / name) as file:
        weighed = _Weighed(file)
        weighed.write(source.read_bytes())
    return weighed.kept(name)


def quoted(*names: str) -> str:
    """Names as SQL wants them, joined by dots."""
    escaped = (name.replace('"', '""') for name in names)
    return ".".join(f'"{name}"' for name in escaped)


def _rows(status: str) -> int:
    return int(status.removeprefix("COPY "))


PLAIN_WORDS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
