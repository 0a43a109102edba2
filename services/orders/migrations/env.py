"""Alembic's door into the schema `orders`."""

from services.orders.checkout import tables as checkout_tables
from services.orders.mail import tables as mail_tables
from services.orders.pricing import tables as pricing_tables
from services.orders.refunds import tables
from services.orders.tables import metadata
from services.orders.tickets import tables as tickets_tables
from services.orders.webhooks import tables as webhooks_tables
from shared.postgres.migrations import run_environment

parts = (tables, checkout_tables, webhooks_tables, tickets_tables, pricing_tables, mail_tables)
assert {part.metadata for part in parts} == {metadata}, "all of one schema"
run_environment(metadata)
