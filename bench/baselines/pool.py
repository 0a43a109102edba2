"""The baselines' connections to PostgreSQL, tuned alike: a fixed number, and nothing is sent when one is given back."""

from typing import Any

import asyncpg

CONNECTIONS = 32


def open_pool(postgres_url: str) -> Any:
    """A pool to enter. asyncpg would otherwise reset a connection's session after every use, in a round trip."""
    return asyncpg.create_pool(postgres_url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=_leave)


async def _leave(_: Any) -> None:
    """The baselines change no session settings, so there is nothing to reset."""
