"""Alembic's door into the schema `orders`."""

from services.orders import price_tables
from shared.migrate import run_environment

run_environment(price_tables.metadata)
