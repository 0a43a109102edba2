"""Places that are not for sale are counted; seats and GA places may be kept aside; what operators changed is kept."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "20261121_1320"
down_revision = "2026_11_21_1230"

SCHEMA = "inventory"


def upgrade() -> None:
    op.add_column(
        "section",
        sa.Column(
            "blocked", sa.Integer, nullable=False, server_default="0", comment="Not for sale: by hand, or kept aside."
        ),
        schema=SCHEMA,
    )
    op.create_check_constraint("never_opened_twice", "section", "blocked >= 0", schema=SCHEMA)
    op.add_column(
        "seat",
        sa.Column("allotment_id", sa.Text, comment="Who a blocked seat is kept aside for; null if blocked by hand."),
        schema=SCHEMA,
    )
    op.create_check_constraint(
        "kept_aside_is_blocked", "seat", "allotment_id IS NULL OR status = 'blocked'", schema=SCHEMA
    )
    op.create_table(
        "allotment",
        sa.Column("event_id", sa.Text),
        sa.Column("allotment_id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("places", JSONB, nullable=False, comment="As it was described."),
        sa.Column("opens_at_ms", sa.BigInteger),
        sa.Column("opened_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("event_id", "allotment_id"),
        schema=SCHEMA,
    )
    op.create_index(
        "ix_allotment_due", "allotment", ["opens_at_ms"], schema=SCHEMA, postgresql_where=sa.text("opened_at IS NULL")
    )
    op.create_table(
        "allotment_ga",
        sa.Column("event_id", sa.Text),
        sa.Column("allotment_id", sa.Text),
        sa.Column("section_id", sa.Text),
        sa.Column(
            "kept", sa.Integer, nullable=False, comment="Still kept aside; part of the section's blocked places."
        ),
        sa.PrimaryKeyConstraint("event_id", "allotment_id", "section_id"),
        sa.CheckConstraint("kept >= 0", name="never_given_twice"),
        schema=SCHEMA,
    )
    op.create_table(
        "stock_change",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("before", JSONB, nullable=False),
        sa.Column("after", JSONB, nullable=False),
        schema=SCHEMA,
    )
    op.create_index("ix_stock_change_event_id", "stock_change", ["event_id", "id"], schema=SCHEMA)


def downgrade() -> None:
    op.drop_table("stock_change", schema=SCHEMA)
    op.drop_table("allotment_ga", schema=SCHEMA)
    op.drop_table("allotment", schema=SCHEMA)
    op.drop_column("seat", "allotment_id", schema=SCHEMA)
    op.drop_column("section", "blocked", schema=SCHEMA)
