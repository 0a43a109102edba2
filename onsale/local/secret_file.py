"""Writes files that only their owner may read: passwords, keys, addresses with passwords in them."""

import os
from pathlib import Path


def write_secret(path: Path, text: str) -> None:
    """Writes a file whole or not at all, readable by its owner only. File and name are on disk when this returns.

    Otherwise a power failure after a key rotation could leave an empty file, and every token the key signed is lost.
    """
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
