"""Migrations of the ledger."""

from services.inventory import return_tables
from services.inventory.tables import metadata
from shared.migrate import run_environment

assert return_tables.ticket_return.metadata is metadata  # its tables are among them
run_environment(metadata)
