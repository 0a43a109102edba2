"""Alembic's door into the schema `orders`."""

from services.orders.paper_tables import metadata
from shared.migrate import run_environment

run_environment(metadata)
