"""The offset that an event's start was written with goes: its venue's time zone stands in its place."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_22_2011"
down_revision = "2026_11_22_2010"

SCHEMA, TABLE = "orders", "event"


def upgrade() -> None:
    op.drop_column(TABLE, "utc_offset_min", schema=SCHEMA)


def downgrade() -> None:
    op.add_column(TABLE, sa.Column("utc_offset_min", sa.Integer(), nullable=False, server_default="0"), schema=SCHEMA)
