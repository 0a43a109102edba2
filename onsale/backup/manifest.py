"""The manifest of a backup: versions, times, revisions and a hash of every file. It is checked before a restore.

Backup folders: they appear complete or not at all, readable by their owner alone; old ones can be removed.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onsale.atomic_file import fsync_folder
from onsale.errors import OperatorError

NAME = "%Y%m%dT%H%M%SZ"
_NAMED = re.compile(r"\d{8}T\d{6}Z")


class BadBackup(OperatorError):
    """The backup cannot be used, or cannot be written; the message says why."""


@contextmanager
def new_backup(place: Path, at: datetime) -> Iterator[Path]:
    """A new folder below `place` that is named after the time, as `whole_folder` makes it."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = place / at.strftime(NAME)
    if whole.exists():
        raise BadBackup(f"{whole} is there already: another backup began in the same second.")
    with whole_folder(whole) as part:
        yield part


@contextmanager
def whole_folder(whole: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete and on disk. Nothing is left on failure."""
    part = whole.with_name(f".{whole.name}.part-{os.getpid()}")
    part.mkdir(mode=0o700, parents=True)
    try:
        yield part
        for folder in (part, *(path for path in part.rglob("*") if path.is_dir())):
            fsync_folder(folder)
        part.replace(whole)
        fsync_folder(whole.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner may read; it is on disk when this ends."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def complete_backups(place: Path) -> list[Path]:
    """The complete folders below `place`, oldest first."""
    return sorted(path for path in place.iterdir() if path.is_dir() and _NAMED.fullmatch(path.name))


def keep_newest(place: Path, count: int) -> list[Path]:
    """Removes all but the newest `count`; the removed ones."""
    return _remove(complete_backups(place)[:-count])


def keep_days(place: Path, days: int, now: datetime) -> list[Path]:
    """Removes folders older than `days`, but never the newest; the removed ones."""
    oldest = now - timedelta(days=days)
    return _remove([path for path in complete_backups(place)[:-1] if _time(path) < oldest])


def _time(path: Path) -> datetime:
    return datetime.strptime(path.name, NAME).replace(tzinfo=UTC)


def _remove(folders: list[Path]) -> list[Path]:
    for folder in folders:
        shutil.rmtree(folder)
    return folders


MANIFEST = "manifest.json"
MANIFEST_MAX_BYTES = 4 * 1024 * 1024
FileName = Annotated[str, Field(pattern=r"^[a-z]+/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=63)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Part):
    """One file of the backup."""

    file: FileName
    bytes: int = Field(ge=0)
    sha256: Sha256


class TableEntry(FileEntry):
    """The rows of one table. Each table comes after those it refers to."""

    table: Name
    columns: list[Name] = Field(min_length=1, max_length=1600)
    rows: int = Field(ge=0)


class SequenceEntry(_Part):
    """The state of a sequence."""

    name: Name
    last_value: int
    is_called: bool


class SchemaEntry(_Part):
    """One service's tables, as of one moment."""

    service: Literal["queue", "inventory", "orders"]
    revision: str
    postgres: str
    as_of: datetime
    tables: list[TableEntry] = Field(max_length=500)
    sequences: list[SequenceEntry] = Field(max_length=500)


class Manifest(_Part):
    """A whole backup."""

    format: Literal[1] = 1
    onsale: str
    began_at: datetime
    ended_at: datetime
    schemas: list[SchemaEntry] = Field(min_length=1, max_length=10)
    files: list[FileEntry] = Field([], max_length=1000)

    def write(self, folder: Path) -> None:
        with private_file(folder / MANIFEST) as file:
            file.write(self.model_dump_json(indent=2).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Reads the manifest. Raises `BadBackup` when the folder is not a complete backup."""
        path = folder / MANIFEST
        try:
            if path.stat().st_size > MANIFEST_MAX_BYTES:
                raise BadBackup(f"{path}: larger than {MANIFEST_MAX_BYTES // 1024 // 1024} MiB.")
            return cls.model_validate_json(path.read_bytes())
        except OSError as missing:
            raise BadBackup(f"{folder} is no backup: {MANIFEST}: {missing.strerror}.") from missing
        except ValidationError as broken:
            first = broken.errors(include_input=False, include_url=False)[0]
            raise BadBackup(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None

    def require_complete(self, folder: Path) -> None:
        """Raises `BadBackup` unless every file is there with the hash of the manifest."""
        for entry in (*self.files, *(table for schema in self.schemas for table in schema.tables)):
            try:
                found = sha256_of(folder / entry.file)
            except OSError as missing:
                raise BadBackup(f"{folder / entry.file}: {missing.strerror}.") from missing
            if found != entry.sha256:
                raise BadBackup(f"{folder / entry.file} was changed: its SHA-256 differs from the manifest.")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
