"""`onsale migrate`: brings the ledger's tables to this version, before the services of this version start.

Each release's migrations only add to what the release before it uses, so they run while that one still serves; what
nobody uses any more goes with the release after.
"""

import asyncio
import os
from typing import Annotated

import typer

from onsale.asking import out
from onsale.child import EngineTrouble
from shared.schema_version import is_behind, revisions
from shared.secret_files import WITH_LEDGERS, postgres_urls

PostgresUrl = Annotated[
    str | None, typer.Option(help="postgresql+asyncpg://…; without it ONSALE_POSTGRES_URL, or QUEUE_POSTGRES_URL, ….")
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if something is to be done.")]


def migrate(postgres_url: PostgresUrl = None, check: Check = False) -> None:
    """Bring the ledger's tables to this version. Safe to repeat, and for several at once."""
    urls = dict.fromkeys(WITH_LEDGERS, postgres_url) if postgres_url else postgres_urls(os.environ)
    if not urls:
        raise EngineTrouble("Which database? Set ONSALE_POSTGRES_URL, or say --postgres-url.")
    behind = [asyncio.run(_one(service, str(urls[service]), check=check)) for service in WITH_LEDGERS]
    if any(behind):
        raise typer.Exit(1)


async def _one(service: str, url: str, *, check: bool) -> bool:
    """Whether it is behind and stays so."""
    from shared import migrate

    address = f"postgresql+asyncpg://{url.partition('://')[2]}"
    if not check:
        await migrate.upgrade(address, service)
    reached = await migrate.reached(address, service)
    behind = is_behind(service, reached)
    state = f"is to go to {revisions(service)[-1]}" if behind else "up to date"
    out.print(f"{service}: {state} (at {reached or 'nothing'})")
    return behind
