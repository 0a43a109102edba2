"""Backup folders: they appear complete or not at all, readable by their owner alone; old ones can be removed."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

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
