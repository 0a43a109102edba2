"""Numbers leave the database as integers, whatever type a sum has: as a `numeric` 10000 is written `1E+4`."""

import asyncpg
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from onsale.local.engines import with_driver
from proof.plans.conftest import SERVICES
from proof.plans.statements import statements

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
