"""Alembic's door into the schema `orders`."""

from services.orders.checkout import tables as checkout_tables
from services.orders.pricing import tables as pricing_tables
from services.orders.tables import metadata
from services.orders.tickets import tables as tickets_tables
from shared.postgres.migrations import run_environment

parts = (checkout_tables, pricing_tables, tickets_tables)
assert {part.metadata for part in parts} == {metadata}, "all of one schema"
run_environment(metadata)
