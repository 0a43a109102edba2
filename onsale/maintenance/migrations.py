"""`onsale migrate`: brings the ledger's tables to this version, before the services of this version start.

Each release's migrations only add to what the release before it uses, so they run while that one still serves; what
nobody uses any more goes with the release after.
"""

import asyncio
import os
from typing import Annotated

import typer

from onsale.commands.context import out
from shared.postgres.schema_version import is_behind, revisions
from shared.runtime.secrets_dir import postgres_urls

PostgresUrl = Annotated[
    str | None, typer.Option(help="postgresql://…; several servers: one:5432,two:5432. Else ONSALE_POSTGRES_URL.")
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if something is to be done.")]


def migrate(postgres_url: PostgresUrl = None, check: Check = False) -> None:
    """Bring the ledger's tables to this version, each service's in its own database if it has one (QUEUE_POSTGRES_URL
    and so on). Safe to repeat, and for several at once.
    """
    behind = [asyncio.run(_one(*ledger, check=check)) for ledger in postgres_urls(os.environ, postgres_url).items()]
    if any(behind):
        raise typer.Exit(1)


async def _one(service: str, url: str, *, check: bool) -> bool:
    """Whether it is behind and stays so."""
    from shared.postgres import migrations

    if not check:
        await migrations.upgrade(url, service)
    reached = await migrations.reached(url, service)
    behind = is_behind(service, reached)
    state = f"is to go to {revisions(service)[-1]}" if behind else "up to date"
    out.print(f"{service}: {state} (at {reached or 'nothing'})")
    return behind
