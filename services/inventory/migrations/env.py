"""Migrations of the ledger."""

from services.inventory.tables import metadata
from shared.migrate import run_environment

run_environment(metadata)
