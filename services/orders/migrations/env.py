"""Alembic's door into the schema `orders`."""

from services.orders.tables import metadata
from shared.postgres.migrations import run_environment

run_environment(metadata)
