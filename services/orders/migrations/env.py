"""Alembic's door into the schema `orders`."""

from services.orders import hook_tables, operator_tables
from services.orders.tables import metadata
from shared.migrate import run_environment

assert {hook_tables.hook.metadata, operator_tables.checkout_share.metadata} == {metadata}, "all of one schema"
run_environment(metadata)
