"""The lottery of a room: what was committed to, who had entered, and what was drawn."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "2026_11_21_1210"
down_revision = "2026_11_21_1230"

SCHEMA = "queue"


def upgrade() -> None:
    op.create_table(
        "lottery",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("seed", sa.LargeBinary, nullable=False),
        sa.Column("blind", sa.LargeBinary, nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.Column("entrants", JSONB),
        sa.Column("counted_at", sa.DateTime(timezone=True)),
        sa.Column("branches", JSONB),
        sa.Column("public_value", sa.Text),
        sa.Column("drawn_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("event_id", "epoch", name="pk_lottery"),
        sa.CheckConstraint("(drawn_at IS NULL) = (public_value IS NULL)", name="ck_lottery_drawn_with_a_value"),
        sa.CheckConstraint("(closed_at IS NULL) = (entrants IS NULL)", name="ck_lottery_closed_with_entrants"),
        sa.CheckConstraint("counted_at IS NULL OR closed_at IS NOT NULL", name="ck_lottery_counted_when_closed"),
        sa.CheckConstraint("drawn_at IS NULL OR counted_at IS NOT NULL", name="ck_lottery_drawn_when_counted"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    op.drop_table("lottery", schema=SCHEMA)
