"""A service works on a schema that is newer than itself, and refuses an older one in one clear line."""

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres import schema_version
from shared.postgres.migrations import downgrade
from shared.postgres.schema_version import SchemaTooOld, migrations_folder, revisions
from shared.web.app import public
from shared.web.routes import SERVICES_WITH_TABLES
from tests.support.wait import wait_until


def app_of(service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str) -> Any:
    monkeypatch.setenv("ONSALE_POSTGRES_URL", postgres_url)
    monkeypatch.setenv("ONSALE_REDIS_URL", redis_url)
    return importlib.import_module(f"services.{service}.app").create_app()


async def readiness(app: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://service") as balancer:
        return await balancer.get("/readyz")


async def is_ready(app: Any) -> bool:
    return (await readiness(app)).is_success


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_refuses_tables_older_than_itself(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str
) -> None:
    reached = revisions(service)[-1]
    monkeypatch.setattr(schema_version, "revisions", lambda service: (reached, "one more"))
    app = app_of(service, monkeypatch, postgres_url, redis_url)
    with pytest.raises(SchemaTooOld, match=f"schema of {service} is at {reached}.*one more: run `onsale migrate`"):
        async with app.router.lifespan_context(app):
            pass


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_works_on_tables_of_a_version_to_come(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text(f"UPDATE {service}.alembic_version SET version_num = '2099_01_01_0000'"))
    app = app_of(service, monkeypatch, postgres_url, redis_url)
    async with app.router.lifespan_context(app):
        await wait_until(lambda: is_ready(app))


async def test_a_ledger_that_was_away_at_the_start_is_asked_by_readiness(
    monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    app = app_of("queue", monkeypatch, "postgresql+asyncpg://nobody@127.0.0.1:1/nowhere", redis_url)
    async with app.router.lifespan_context(app):
        monkeypatch.setattr(app.state.preconditions.schema, "_db", postgres)
        await downgrade(postgres_url, "queue", "base")
        assert "schema" in (await readiness(app)).json()["failing"]


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_migrations_are_one_line(service: str) -> None:
    heads = ScriptDirectory(str(migrations_folder(service))).get_heads()
    assert heads == [revisions(service)[-1]]


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_a_release_takes_nothing_away_that_the_one_before_uses(service: str) -> None:
    """What nobody uses any more goes with the release after, by a migration that says so in its name."""
    for path in sorted((migrations_folder(service) / "versions").glob("*.*")):
        if not path.stem.endswith("_contract"):
            taken = re.search(r"drop_column|drop_table|rename_table|alter_column|DROP (TABLE|COLUMN)", upwards(path))
            assert taken is None, f"{path.name}: {taken}"


def upwards(path: Path) -> str:
    """What of a migration's file runs when a schema is brought up to date: all but `downgrade`."""
    if path.suffix == ".sql":
        return path.read_text()
    functions = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return "\n".join(ast.unparse(function) for function in functions if function.name != "downgrade")
