"""Every table and every statement of a sale has its shard key, `event_id` or the order's `reference`, so that a
distributed PostgreSQL can spread them (docs/databases.md).
"""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from sqlalchemy import Table

from shared.web.routes import SERVICES_WITH_TABLES

ROOT = Path(__file__).parents[1]
SHARD_KEYS = {"event_id", "reference"}
WITHOUT_SHARD_KEY = {  # a few rows for the whole service, or written by operators, not by fans
    "queue.audit_log", "inventory.audit_log", "orders.audit_log", "queue.log_offset", "queue.outbox_lease",
    "inventory.outbox_lease", "orders.outbox_lease", "orders.mail_opt_out",
}  # fmt: skip
ACROSS_SHARDS = {  # a few times a minute, or on rows that the statement before has named by their ids
    "services/inventory/reservations/sql/lock_reservations.sql", "services/orders/reports/sql/settlement.sql",
    "services/orders/sql/count_due.sql",
    "services/orders/webhooks/sql/delete_old_deliveries.sql", "services/orders/webhooks/sql/finish_delivery.sql",
    "services/orders/webhooks/sql/lease_deliveries.sql",
}  # fmt: skip
STATEMENTS = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "services").rglob("sql/*.sql") if "migrations" not in path.parts
)


def tables() -> list[Table]:
    """The tables of all services."""
    found: list[Table] = []
    for service in SERVICES_WITH_TABLES:
        package = importlib.import_module(f"services.{service}")
        for module in pkgutil.walk_packages(package.__path__, f"services.{service}."):
            if module.name.endswith(".tables"):
                importlib.import_module(module.name)
        found += importlib.import_module(f"services.{service}.tables").metadata.tables.values()
    return found


def test_every_table_of_a_sale_has_a_shard_key() -> None:
    without = {table.fullname for table in tables() if not SHARD_KEYS & set(table.columns.keys())}
    assert without == WITHOUT_SHARD_KEY


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_statement_names_the_shard_key(path: str) -> None:
    names_it = re.search(r"\b(event_id|reference)s?\b", re.sub(r"--.*", "", (ROOT / path).read_text())) is not None
    assert names_it != (path in ACROSS_SHARDS)


def test_the_guide_lists_the_tables_that_are_copied_to_every_shard() -> None:
    guide = (ROOT / "docs" / "databases.md").read_text()
    assert [name for name in WITHOUT_SHARD_KEY if name.partition(".")[2] not in guide] == []
