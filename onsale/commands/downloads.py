"""A file the suite streams, written to disk: all of it or no file, and never over another."""

from pathlib import Path
from typing import BinaryIO

import httpx

from onsale.commands.client import Refused
from onsale.local import key_file
from onsale.local.engines import suite_url


def download(url: str | None, data_dir: Path, path: str, file: Path) -> None:
    """Asks the admin API for `path`. Raises `ProviderRejected`."""
    key = {"authorization": f"Bearer {key_file.admin_key(data_dir)}"}
    address = (url or suite_url(data_dir)).rstrip("/") + path
    try:
        with httpx.stream("GET", address, headers=key, timeout=60, trust_env=False) as answer:
            if answer.is_error:
                raise Refused(f"The export was refused: {answer.status_code}.")
            with file.open("xb") as written:
                _save(answer, file, written)
    except httpx.HTTPError as broken:
        raise Refused(f"The export broke off: {type(broken).__name__}.") from broken
    except OSError as unwritable:
        raise Refused(f"{file}: {unwritable.strerror}") from unwritable


def _save(answer: httpx.Response, file: Path, written: BinaryIO) -> None:
    try:
        for part in answer.iter_bytes():
            written.write(part)
    except BaseException:
        file.unlink()
        raise
