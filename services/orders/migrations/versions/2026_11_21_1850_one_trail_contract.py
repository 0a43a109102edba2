"""One audit trail: what was done at the desk stands beside everything else that operators changed."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_1850"
down_revision = "2026_11_21_1810"

SCHEMA = "orders"
MOVE = """
    INSERT INTO orders.operator_change (at, actor, role, action, subject, reason, before, after)
    SELECT at, actor, role, action,
        CASE WHEN reference IS NULL THEN concat_ws(chr(58), 'event', event_id)
            ELSE concat_ws(chr(58), 'order', reference) END,
        reason, jsonb_build_object('status', before), details
    FROM orders.desk_action ORDER BY id"""


def upgrade() -> None:
    op.add_column("operator_change", sa.Column("role", sa.Text()), schema=SCHEMA)
    op.alter_column("operator_change", "at", server_default=sa.text("now()"), schema=SCHEMA)
    op.execute(MOVE)
    op.drop_table("desk_action", schema=SCHEMA)


def downgrade() -> None:
    """What was moved stays where it is."""
    op.create_table(
        "desk_action",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), comment="Null for what was done to a whole event."),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False, comment="The status before."),
        sa.Column("details", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_desk_action"),
        schema=SCHEMA,
    )
    op.create_index("ix_desk_action_reference", "desk_action", ["reference"], schema=SCHEMA)
    op.create_index("ix_desk_action_event_id", "desk_action", ["event_id", "id"], schema=SCHEMA)
    op.alter_column("operator_change", "at", server_default=sa.text("clock_timestamp()"), schema=SCHEMA)
    op.drop_column("operator_change", "role", schema=SCHEMA)
