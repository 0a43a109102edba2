"""The database that tests share refuses what only a database of a test's own may meet.

Numbers leave the database as integers, whatever type a sum has: as a `numeric` 10000 is written `1E+4`.
"""

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from onsale.local.engines import with_driver
from proof.plans.conftest import SERVICES
from proof.plans.statements import statements

STATEMENTS = ("ALTER TABLE orders.mail ADD more integer", "UPDATE orders.alembic_version SET version_num = 'other'")


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_the_shared_database_keeps_its_schema(postgres: AsyncEngine, statement: str) -> None:
    async with postgres.connect() as connection:
        with pytest.raises(DBAPIError, match='needs the fixture "own_database"'):
            await connection.execute(text(statement))


async def test_a_database_of_its_own_may_be_changed(own_database: str, postgres: AsyncEngine) -> None:
    assert own_database == postgres.url.render_as_string(hide_password=False)
    async with postgres.begin() as connection:
        for statement in STATEMENTS:
            await connection.execute(text(statement))


FRACTIONS = {"percent", "oldest_s"}  # exact decimals and seconds


async def test_no_statement_gives_a_sum_as_numeric(postgres_url: str) -> None:
    connection = await asyncpg.connect(with_driver(postgres_url))
    found = []
    for service in SERVICES:
        for name, sql in statements(service).items():
            prepared = await connection.prepare(text(sql).compile(dialect=PGDialect_asyncpg()).string)
            wrong = {column.name for column in prepared.get_attributes() if column.type.name == "numeric"} - FRACTIONS
            found += [f"{service} {name}: {column}" for column in sorted(wrong)]
    await connection.close()
    assert found == []
