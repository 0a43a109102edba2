"""Alembic environment of inventory's migrations."""

from services.inventory import tables
from services.inventory.tables import metadata
from shared.postgres.migrations import run_environment

assert tables.ticket_return.metadata is metadata  # its tables are among them
run_environment(metadata)
