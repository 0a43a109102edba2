"""The database that tests share refuses what only a database of a test's own may meet."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

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
