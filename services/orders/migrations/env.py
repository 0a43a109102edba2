"""Alembic's door into the schema `orders`."""

from services.orders import desk_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

assert desk_tables.desk_action.metadata is metadata  # its tables are among them
run_environment(metadata)
