"""Alembic's door into the schema `orders`."""

from services.orders import price_tables  # noqa: F401 - its tables are in the metadata once it is imported
from services.orders.tables import metadata
from shared.migrate import run_environment

run_environment(metadata)
