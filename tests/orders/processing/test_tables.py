"""The migrations create exactly the tables declared in the code; the step to one row an order cannot be undone."""

import pytest

from shared.postgres.migrations import current_revision_at, downgrade, drift, upgrade
from shared.postgres.schema_version import revisions

pytestmark = pytest.mark.usefixtures("own_database")


async def test_tables_and_migrations_agree(postgres_url):
    await drift(postgres_url, "orders")


async def test_a_downgrade_is_refused_and_changes_nothing(postgres_url):
    """Going back means the backup: the version before cannot read what this one wrote."""
    for revision in ("base", "0006"):
        with pytest.raises(RuntimeError, match="Restore the backup"):
            await downgrade(postgres_url, "orders", revision)
    assert await current_revision_at(postgres_url, "orders") == revisions("orders")[-1]
    await drift(postgres_url, "orders")


async def test_a_second_upgrade_changes_nothing(postgres_url):
    for _ in range(2):
        await upgrade(postgres_url, "orders")
        assert await current_revision_at(postgres_url, "orders") == revisions("orders")[-1]
    await drift(postgres_url, "orders")
