"""Folders that appear whole under their name or not at all, readable by their owner alone; old ones can be dropped."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from onsale.local.process import EngineTrouble

NAME = "%Y%m%dT%H%M%SZ"
_NAMED = re.compile(r"\d{8}T\d{6}Z")


class BadBackup(EngineTrouble):
    """The backup cannot be used, or cannot be written; the message is one sentence for a person."""


@contextmanager
def new_folder(place: Path, at: datetime) -> Iterator[Path]:
    """A folder below `place`, named by its time once it is whole and on disk; nothing is left of a failed one."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = place / at.strftime(NAME)
    if whole.exists():
        raise BadBackup(f"{whole} is there already: another backup began in the same second.")
    part = place / f".{whole.name}.part-{os.getpid()}"
    part.mkdir(mode=0o700)
    try:
        yield part
        for folder in (part, *(path for path in part.rglob("*") if path.is_dir())):
            _force(folder)
        part.rename(whole)
        _force(place)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A new file for its owner alone, on disk when this ends."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def whole_ones(place: Path) -> list[Path]:
    """The finished folders below `place`, oldest first."""
    return sorted(path for path in place.iterdir() if path.is_dir() and _NAMED.fullmatch(path.name))


def keep_newest(place: Path, count: int) -> list[Path]:
    """Removes all but the newest `count`; which went."""
    return _remove(whole_ones(place)[:-count])


def keep_days(place: Path, days: int, now: datetime) -> list[Path]:
    """Removes what is older than so many days, the newest never; which went."""
    oldest = now - timedelta(days=days)
    return _remove([path for path in whole_ones(place)[:-1] if _time(path) < oldest])


def _time(path: Path) -> datetime:
    return datetime.strptime(path.name, NAME).replace(tzinfo=UTC)


def _remove(folders: list[Path]) -> list[Path]:
    for folder in folders:
        shutil.rmtree(folder)
    return folders


def _force(folder: Path) -> None:
    """What was renamed or made in a folder is on disk when the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
