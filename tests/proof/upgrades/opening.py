"""Schemas of earlier commits, made by their own migrations with a row in every table, are opened by today's."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from onsale.local.engines import with_driver
from shared.postgres.earlier_schema import KEPT_AS
from shared.postgres.errors import WrongDatabase
from shared.postgres.migrations import current_revision_at, upgrade
from shared.postgres.schema_version import revisions
from tests.proof.upgrades.earlier_rows import fill, lost
from tests.proof.upgrades.history import EarlierSchema, unpacked

MIGRATE = """
import asyncio, importlib, sys
for name in ("shared.postgres.migrations", "shared.migrations", "shared.migrate"):
    try:
        upgrade = importlib.import_module(name).upgrade
        break
    except ModuleNotFoundError:
        pass
asyncio.run(upgrade(*sys.argv[1:]))
"""
OPENED, REFUSED = "opened", "refused clearly"


def environ_of(tree: Path) -> Mapping[str, str]:
    """The environment in which Python runs the code of another commit."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    return kept | {"PYTHONPATH": str(tree)}


async def open_schema(schema: EarlierSchema, postgres_url: str, folder: Path) -> str:
    """Makes the schema, fills and upgrades it; `OPENED`, `REFUSED`, or a sentence that says what is wrong."""
    tree = await asyncio.to_thread(unpacked, schema.commit, folder)
    command = [sys.executable, "-P", "-c", MIGRATE, postgres_url, schema.service]
    made = await asyncio.to_thread(
        subprocess.run, command, cwd=tree, env=environ_of(tree), capture_output=True, text=True, check=False
    )
    if made.returncode:
        return f"its own migrations fail today: {made.stderr.strip().splitlines()[-1]}"
    connection = await asyncpg.connect(with_driver(postgres_url))
    try:
        await fill(connection, schema.service)
        try:
            await upgrade(postgres_url, schema.service)
        except WrongDatabase as refused:
            return f"{REFUSED}: {refused}"
        if await current_revision_at(postgres_url, schema.service) != revisions(schema.service)[-1]:
            return "it is not at the last revision after `onsale migrate`"
        kept = KEPT_AS.format(schema.service)
        if await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", kept):
            missing = await lost(connection, kept, schema.service)
            return f"rows lack values: {'; '.join(missing)}" if missing else OPENED
        return OPENED
    finally:
        for name in (schema.service, KEPT_AS.format(schema.service)):
            await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        await connection.close()
