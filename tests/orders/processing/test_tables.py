"""The migrations create exactly the tables declared in the code."""

import pytest

from shared.postgres.migrations import downgrade, drift, upgrade

pytestmark = pytest.mark.usefixtures("own_database")


async def test_tables_and_migrations_agree(postgres_url):
    await drift(postgres_url, "orders")


async def test_the_schema_can_be_downgraded_and_upgraded_again(postgres_url):
    await downgrade(postgres_url, "orders", "base")
    await upgrade(postgres_url, "orders")
    await drift(postgres_url, "orders")
