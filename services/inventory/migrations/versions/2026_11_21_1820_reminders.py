"""Consent to reminders, given with a reservation and kept until orders has heard of it."""

import sqlalchemy as sa
from alembic import op

revision = "20261121_1820"
down_revision = "20261121_1530"

SCHEMA, TABLE, COLUMN, INDEX = "inventory", "reservation", "reminders_asked", "ix_reservation_reminders"


def upgrade() -> None:
    asked: sa.Column[bool] = sa.Column(
        COLUMN, sa.Boolean(), nullable=False, server_default=sa.text("false"), comment="Until orders knows."
    )
    op.add_column(TABLE, asked, schema=SCHEMA)
    op.create_index(INDEX, TABLE, ["reservation_id"], schema=SCHEMA, postgresql_where=sa.text(COLUMN))


def downgrade() -> None:
    op.drop_index(INDEX, TABLE, schema=SCHEMA)
    op.drop_column(TABLE, COLUMN, schema=SCHEMA)
