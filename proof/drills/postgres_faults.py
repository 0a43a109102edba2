"""Faults of the PostgreSQL server that services use: their connections are ended, or none is left for them."""

from contextlib import AsyncExitStack

import asyncpg

from onsale.local.engines import with_driver

END_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onsale-%'"


async def take_all_connections(url: str, stack: AsyncExitStack) -> None:
    """Takes every connection the server has, those of the services included; closing `stack` returns them."""
    taken: list[asyncpg.Connection] = []
    while True:
        try:
            taken.append(await asyncpg.connect(with_driver(url)))
        except asyncpg.TooManyConnectionsError:
            if not await taken[0].fetch(END_CONNECTIONS):
                return
        else:
            stack.push_async_callback(taken[-1].close)
