"""Tours: a limit of one customer over several events, whose payments then take turns over all of them."""

import sqlalchemy as sa
from alembic import op

revision = "20261122_2110"
down_revision = "20261122_2010"

SCHEMA, TABLE, INDEX = "inventory", "event", "ix_event_tour"


def upgrade() -> None:
    tickets: sa.Column[int] = sa.Column(
        "tour_tickets_per_customer", sa.Integer(), nullable=False, server_default="0", comment="Over the whole tour."
    )
    op.add_column(TABLE, sa.Column("tour_id", sa.Text()), schema=SCHEMA)
    op.add_column(TABLE, tickets, schema=SCHEMA)
    op.create_index(INDEX, TABLE, ["tour_id"], schema=SCHEMA, postgresql_where=sa.text("tour_id IS NOT NULL"))


def downgrade() -> None:
    op.drop_index(INDEX, TABLE, schema=SCHEMA)
    op.drop_column(TABLE, "tour_tickets_per_customer", schema=SCHEMA)
    op.drop_column(TABLE, "tour_id", schema=SCHEMA)
