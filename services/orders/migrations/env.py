"""Alembic's door into the schema `orders`."""

from services.orders import hook_tables, operator_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

assert {hook_tables.metadata, operator_tables.metadata} == {metadata}, "one schema, several rooms"
run_environment(metadata)
