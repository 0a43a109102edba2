"""Tickets given back some at a time."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261121_1530"
down_revision = "20261121_1340"

SCHEMA = "inventory"


def upgrade() -> None:
    op.create_table(
        "ticket_return",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("return_id", sa.Text(), nullable=False),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("places", postgresql.JSONB(), nullable=False),
        sa.Column("kept_blocked", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "returned_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")
        ),
        sa.PrimaryKeyConstraint("event_id", "return_id", name="pk_ticket_return"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    op.drop_table("ticket_return", schema=SCHEMA)
