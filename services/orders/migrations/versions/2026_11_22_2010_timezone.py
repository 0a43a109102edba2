"""The time zone of an event's venue, instead of the offset its start was written with."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_2010"
down_revision = "2026_11_21_1850"

SCHEMA, TABLE = "orders", "event"
OFFSET = """CASE WHEN utc_offset_min = 0 THEN 'UTC' ELSE
    (CASE WHEN utc_offset_min < 0 THEN '-' ELSE '+' END)
    || lpad((abs(utc_offset_min) / 60)::text, 2, '0') || ':' || lpad((abs(utc_offset_min) % 60)::text, 2, '0') END"""


def upgrade() -> None:
    op.add_column(TABLE, sa.Column("timezone", sa.Text(), nullable=False, server_default="UTC"), schema=SCHEMA)
    op.execute(f"UPDATE {SCHEMA}.{TABLE} SET timezone = {OFFSET}")  # noqa: S608 - names of our own


def downgrade() -> None:
    op.drop_column(TABLE, "timezone", schema=SCHEMA)
