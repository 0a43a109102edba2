"""Migrations make the tables the code declares, CHECKs included, which alembic's own comparison does not see."""

import importlib

import pytest
from sqlalchemy import CheckConstraint, text

from shared.migrate import SERVICES_WITH_TABLES, drift

CHECKS = text("""
    SELECT c.conrelid::regclass::text AS name, count(*) AS checks FROM pg_constraint c
    JOIN pg_namespace n ON n.oid = c.connamespace WHERE c.contype = 'c' AND n.nspname = :schema GROUP BY 1""")


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
async def test_migrations_and_tables_agree(service, postgres, postgres_url) -> None:
    await drift(postgres_url, service)
    metadata = importlib.import_module(f"services.{service}.tables").metadata
    declared = {
        table.fullname: len(
            {
                part
                for constraints in (table.constraints, *(column.constraints for column in table.columns))
                for part in constraints
                if isinstance(part, CheckConstraint)
            }
        )
        for table in metadata.tables.values()
    }
    async with postgres.connect() as connection:
        rows = await connection.execute(CHECKS, {"schema": service})
        made = {row.name.replace('"', ""): row.checks for row in rows}
    assert {name: checks for name, checks in declared.items() if checks} == made
