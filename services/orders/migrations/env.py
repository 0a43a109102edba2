"""Alembic's door into the schema `orders`."""

from services.orders import desk_tables, hook_tables, operator_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

parts = {desk_tables.desk_action.metadata, hook_tables.hook.metadata, operator_tables.checkout_share.metadata}
assert parts == {metadata}, "all of one schema"
run_environment(metadata)
