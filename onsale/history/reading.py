"""Where the books of a sale are, for the checker of its history."""

import os
from collections.abc import Collection
from pathlib import Path

import asyncpg
import httpx

from onsale.data_dir import ENGINES_FILE, read_engines_file
from onsale.errors import OperatorError
from onsale.history.checker import BadHistory, Report, check
from onsale.history.checks.check import Sources
from shared.errors.database import WrongDatabase
from shared.process.secrets_dir import postgres_urls


async def report_on(file: Path, event_ids: Collection[str], data_dir: Path, sandbox_url: str | None) -> Report:
    """What the checker finds with the databases that the environment names, else with those of the data directory.

    Raises `OperatorError` if the history or the books cannot be read.
    """
    try:
        return await check(file, _sources(data_dir, sandbox_url), event_ids)
    except BadHistory as bad:
        raise OperatorError(str(bad)) from bad
    except (OSError, asyncpg.PostgresError, httpx.HTTPError) as unreachable:
        raise OperatorError(f"The books of the sale cannot be read: {unreachable}") from unreachable


def _sources(data_dir: Path, sandbox_url: str | None) -> Sources:
    default = None
    if (data_dir / ENGINES_FILE).exists():
        engines = read_engines_file(data_dir)
        default, sandbox_url = engines.postgres_url, sandbox_url or engines.sandbox_url
    try:
        urls = postgres_urls(os.environ)
    except WrongDatabase as unset:
        if default is None:
            raise OperatorError(str(unset)) from unset
        urls = postgres_urls(os.environ, default)
    return Sources(urls["queue"], urls["inventory"], urls["orders"], sandbox_url)
