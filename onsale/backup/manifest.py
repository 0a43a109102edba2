"""The manifest of a backup: versions, times, revisions and a hash of every file. It is checked before a restore."""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onsale.backup.folder import BadBackup, private_file

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
