"""Writes files whole or not at all, readable by their owner only: passwords, keys, data that must survive."""

import os
from collections.abc import Iterable
from pathlib import Path


def atomic_write(path: Path, content: str | Iterable[bytes]) -> None:
    """Replaces the file. File and name are on disk when this returns.

    Otherwise a power failure after a key rotation could leave an empty file, and every token the key signed is lost.
    """
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines([content.encode()] if isinstance(content, str) else content)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Forces a folder to disk, and so the names of the files created or renamed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
