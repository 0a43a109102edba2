"""Migrations create the tables that the code declares, with their CHECKs, which alembic does not compare."""

import asyncio
import importlib
import os

import pytest
from sqlalchemy import CheckConstraint, text

from onsale.local.ports import HOST, free_port
from shared.errors.database import WrongDatabase
from shared.features import package_of
from shared.postgres.migrations import current_revision_at, downgrade, drift, upgrade
from shared.postgres.schema_version import revisions
from shared.process.secrets_dir import postgres_urls
from shared.routes import SERVICES_WITH_TABLES
from tools.reference.tables import tables

pytestmark = pytest.mark.usefixtures("own_database")

CHECKS = text("""
    SELECT c.conrelid::regclass::text AS name, count(*) AS checks FROM pg_constraint c
    JOIN pg_namespace n ON n.oid = c.connamespace WHERE c.contype = 'c' AND n.nspname = :schema GROUP BY 1""")


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_migrations_create_the_declared_tables(service, postgres, postgres_url) -> None:
    declared = {
        table.fullname: len(
            {
                part
                for constraints in (table.constraints, *(column.constraints for column in table.columns))
                for part in constraints
                if isinstance(part, CheckConstraint)
            }
        )
        for table in tables(service)
    }
    await drift(postgres_url, service)
    async with postgres.connect() as connection:
        rows = await connection.execute(CHECKS, {"schema": service})
        created = {row.name.replace('"', ""): row.checks for row in rows}
    assert {name: checks for name, checks in declared.items() if checks} == created


async def test_all_services_may_be_migrated_at_once_in_one_process(postgres, postgres_url: str) -> None:
    """As `onsale up` does at its first start."""
    for _ in range(3):
        async with postgres.begin() as connection:
            for service in SERVICES_WITH_TABLES:
                await connection.execute(text(f"DROP SCHEMA {service} CASCADE"))
        await asyncio.gather(*(upgrade(postgres_url, service) for service in SERVICES_WITH_TABLES))
        for service in SERVICES_WITH_TABLES:
            assert await current_revision_at(postgres_url, service) == revisions(service)[-1]


@pytest.mark.parametrize("service", [name for name in SERVICES_WITH_TABLES if name != "orders"])
async def test_a_service_can_be_downgraded_to_its_first_migration_and_upgraded_again(service, postgres_url) -> None:
    """That of orders is refused (`test_tables`)."""
    await downgrade(postgres_url, service, revisions(service)[0])
    assert await current_revision_at(postgres_url, service) == revisions(service)[0]
    await upgrade(postgres_url, service)
    await drift(postgres_url, service)


async def test_an_unreachable_database_is_reported_in_one_line() -> None:
    nowhere = f"postgresql://u@{HOST}:{free_port()},{HOST}:{free_port()}/db"
    with pytest.raises(WrongDatabase, match="No PostgreSQL server accepts writes"):
        await upgrade(nowhere, "queue")


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_a_services_database_is_migrated_at_the_url_of_its_settings(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = importlib.import_module(f"{package_of(service)}.settings").Settings
    monkeypatch.setenv("ONSALE_POSTGRES_URL", "postgresql://shared")
    assert settings().postgres_url == postgres_urls(os.environ)[service] == "postgresql://shared"
    monkeypatch.setenv(f"{service.upper()}_POSTGRES_URL", "postgresql://own")
    assert settings().postgres_url == postgres_urls(os.environ)[service] == "postgresql://own"
    others = {f"{name.upper()}_POSTGRES_URL": "postgresql://own" for name in SERVICES_WITH_TABLES if name != service}
    with pytest.raises(WrongDatabase, match=f"database of {service}.*{service.upper()}_POSTGRES_URL"):
        postgres_urls(others)


async def test_migrations_go_down_and_up_again(postgres_url: str) -> None:
    await downgrade(postgres_url, "queue", "base")
    await upgrade(postgres_url, "queue")
    await upgrade(postgres_url, "queue")
    await drift(postgres_url, "queue")
