"""The database's tables and its migrations agree."""

import pytest

from shared.postgres.migrations import downgrade, drift, upgrade

pytestmark = pytest.mark.usefixtures("own_database")


async def test_tables_and_migrations_agree(postgres_url: str):
    await drift(postgres_url, "queue")


async def test_migrations_go_down_and_up_again(postgres_url: str):
    await downgrade(postgres_url, "queue", "base")
    await upgrade(postgres_url, "queue")
    await upgrade(postgres_url, "queue")
    await drift(postgres_url, "queue")
