"""Alembic's door into the schema `orders`."""

from services.orders import desk_tables, hook_tables, operator_tables, paper_tables, price_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

parts = (desk_tables, hook_tables, operator_tables, paper_tables, price_tables)
assert {part.metadata for part in parts} == {metadata}, "all of one schema"
run_environment(metadata)
