"""The baselines' pool of PostgreSQL connections, tuned alike: a fixed size, and no reset query on release."""

from pathlib import Path
from typing import Any

import asyncpg

CONNECTIONS = 32
SQL = Path(__file__).parent / "sql"


def open_pool(postgres_url: str) -> Any:
    """A pool to enter. asyncpg would otherwise reset a connection's session after every use, in a round trip."""
    return asyncpg.create_pool(postgres_url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=_reset_nothing)


def read_sql(name: str) -> str:
    """The statements of `sql/<name>.sql`."""
    return (SQL / f"{name}.sql").read_text()


async def _reset_nothing(_: Any) -> None:
    """The baselines change no session settings, so there is nothing to reset."""
