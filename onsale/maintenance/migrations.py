"""`onsale migrate`: upgrades the tables in PostgreSQL to this version, before the services of this version start.

The migrations of a release only add to what the release before it uses, so they run while that one still serves;
tables and columns that are no longer used are dropped by the release after.
"""

import asyncio
import os
from typing import Annotated

import typer

from onsale.cli.context import out
from shared.postgres.schema_version import is_behind, revisions
from shared.process.secrets_dir import postgres_urls

PostgresUrl = Annotated[
    str | None, typer.Option(help="postgresql://…; several servers: one:5432,two:5432. Default: ONSALE_POSTGRES_URL.")
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if a migration is due.")]


def migrate(postgres_url: PostgresUrl = None, check: Check = False) -> None:
    """Upgrade the tables in PostgreSQL to this version.

    A service with a database of its own (QUEUE_POSTGRES_URL and so on) is upgraded there. Safe to repeat, and to run
    several times at once.
    """
    behind = [
        asyncio.run(_upgraded(*database, check=check)) for database in postgres_urls(os.environ, postgres_url).items()
    ]
    if any(behind):
        raise typer.Exit(1)


async def _upgraded(service: str, url: str, *, check: bool) -> bool:
    """Upgrades one service's tables, unless `check`; whether they are behind this version afterwards."""
    from shared.postgres import migrations

    if not check:
        await migrations.upgrade(url, service)
    reached = await migrations.current_revision_at(url, service)
    behind = is_behind(service, reached)
    state = f"is to go to {revisions(service)[-1]}" if behind else "up to date"
    out.print(f"{service}: {state} (at {reached or 'nothing'})")
    return behind
