"""A service works on a schema newer than itself, and refuses an older one in one line."""

import ast
import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.features import package_of
from shared.postgres import schema_version
from shared.postgres.migrations import current_revision_at, downgrade, upgrade
from shared.postgres.schema_version import SchemaTooOld, migrations_folder, revisions
from shared.routes import SERVICES_WITH_TABLES
from shared.web.app import public
from tests.support.wait import wait_until

WHILE_STOPPED = ("orders", "0008_one_row")

pytestmark = pytest.mark.usefixtures("own_database")


def create_app(service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str) -> Any:
    monkeypatch.setenv("ONSALE_POSTGRES_URL", postgres_url)
    monkeypatch.setenv("ONSALE_REDIS_URL", redis_url)
    return importlib.import_module(f"{package_of(service)}.app").create_app()


async def readiness(app: Any) -> httpx.Response:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(public(app)), base_url="http://service"
    ) as load_balancer:
        return await load_balancer.get("/readyz")


async def is_ready(app: Any) -> bool:
    return (await readiness(app)).is_success


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_refuses_a_schema_older_than_itself(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str
) -> None:
    latest = revisions(service)[-1]
    monkeypatch.setattr(schema_version, "revisions", lambda service: (latest, "one more"))
    app = create_app(service, monkeypatch, postgres_url, redis_url)
    with pytest.raises(SchemaTooOld, match=f"schema of {service} is at {latest}.*one more: run `onsale migrate`"):
        async with app.router.lifespan_context(app):
            pass


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_a_service_works_on_a_schema_of_a_later_version(
    service: str, monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text(f"UPDATE {service}.alembic_version SET version_num = '2099_01_01_0000'"))
    app = create_app(service, monkeypatch, postgres_url, redis_url)
    async with app.router.lifespan_context(app):
        await wait_until(lambda: is_ready(app))


async def test_readiness_checks_the_schema_of_a_database_that_was_down_at_start(
    monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str, redis_url: str
) -> None:
    app = create_app("queue", monkeypatch, "postgresql+asyncpg://nobody@127.0.0.1:1/nowhere", redis_url)
    async with app.router.lifespan_context(app):
        monkeypatch.setattr(app.state.preconditions.schema, "_db", postgres)
        await downgrade(postgres_url, "queue", "base")
        assert "schema" in (await readiness(app)).json()["failing"]


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_revisions_are_those_that_alembic_finds_and_have_one_head(service: str) -> None:
    script = ScriptDirectory(str(migrations_folder(service)))
    assert script.get_heads() == [revisions(service)[-1]]
    assert [each.revision for each in script.walk_revisions()] == list(reversed(revisions(service)))


def test_revisions_follow_each_other_whatever_their_files_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "versions").mkdir()
    for file, before, revision in (("a", '"2"', "3"), ("b", '"1"', "2"), ("c", "None", "1")):
        (tmp_path / "versions" / f"{file}.py").write_text(f'revision = "{revision}"\ndown_revision = {before}\n')
    monkeypatch.setattr(schema_version, "migrations_folder", lambda service: tmp_path)
    assert revisions.__wrapped__("queue") == ("1", "2", "3")


@pytest.mark.parametrize(
    ("reached", "is_run"), [(revisions("console")[0], True), (revisions("console")[-1], False), ("2099_later", False)]
)
async def test_alembic_runs_only_where_the_schema_is_not_at_the_last_revision(
    reached: str, is_run: bool, monkeypatch: pytest.MonkeyPatch, postgres: AsyncEngine, postgres_url: str
) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text("UPDATE console.alembic_version SET version_num = :at"), {"at": reached})
    ran: list[str] = []
    monkeypatch.setattr(command, "upgrade", lambda config, revision: ran.append(revision))
    await upgrade(postgres_url, "console")
    assert ran == ["head"] * is_run


async def test_two_runs_create_a_schema_once(postgres: AsyncEngine, postgres_url: str) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text("DROP SCHEMA console CASCADE"))
    await asyncio.gather(upgrade(postgres_url, "console"), upgrade(postgres_url, "console"))
    assert await current_revision_at(postgres_url, "console") == revisions("console")[-1]


async def test_a_schema_without_tables_is_upgraded(postgres: AsyncEngine, postgres_url: str) -> None:
    await downgrade(postgres_url, "queue", "base")
    await upgrade(postgres_url, "queue")
    assert await current_revision_at(postgres_url, "queue") == revisions("queue")[-1]
    async with postgres.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM queue.place"))).scalar() == 0


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_a_migration_removes_nothing_that_the_release_before_uses(service: str) -> None:
    """Unused tables and columns are removed one release later, by a migration whose name ends in `_contract`. For the
    one to one row an order all processes of orders are stopped.
    """
    for path in sorted((migrations_folder(service) / "versions").glob("*.*")):
        if not path.stem.endswith("_contract") and (service, path.stem) != WHILE_STOPPED:
            removal = re.search(
                r"drop_column|drop_table|rename_table|alter_column|DROP (TABLE|COLUMN)", upgrade_code(path)
            )
            assert removal is None, f"{path.name}: {removal}"


def upgrade_code(path: Path) -> str:
    """The part of a migration's file that an upgrade runs: all but `downgrade`."""
    if path.suffix == ".sql":
        return path.read_text()
    functions = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return "\n".join(ast.unparse(function) for function in functions if function.name != "downgrade")
