"""Alembic's door into the schema `orders`."""

from services.orders import desk_tables, hook_tables, operator_tables, paper_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

parts = {desk_tables.desk_action, hook_tables.hook, operator_tables.checkout_share, paper_tables.ticket}
assert {table.metadata for table in parts} == {metadata}, "all of one schema"
run_environment(metadata)
