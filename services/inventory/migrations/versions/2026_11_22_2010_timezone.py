"""The time zone of an event's venue."""

import sqlalchemy as sa
from alembic import op

revision = "20261122_2010"
down_revision = "20261121_1820"

SCHEMA, TABLE, COLUMN = "inventory", "event", "timezone"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column(COLUMN, sa.Text(), nullable=False, server_default="UTC"), schema=SCHEMA)


def downgrade() -> None:
    op.drop_column(TABLE, COLUMN, schema=SCHEMA)
