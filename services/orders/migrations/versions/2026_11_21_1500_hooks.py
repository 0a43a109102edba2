"""Webhooks to the organiser, owed by the transaction that makes their event; the share of checkouts done in the
background; what caused a command; and the operators' audit trail.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_1500"
down_revision = "2026_11_21_1230"

SCHEMA = "orders"
AT = sa.DateTime(timezone=True)
OWE = """
CREATE FUNCTION orders.owe_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orders.hook_delivery (hook_id, message_id, kind, event_id, reference, body)
    SELECT h.hook_id, 'msg_' || (t.body ->> 'id'), k.kind, t.event_id, t.body #>> '{after,reference}',
        jsonb_build_object(
            'type', k.kind,
            'timestamp', to_char(to_timestamp((t.body ->> 'occurred_at_ms')::bigint / 1000.0) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'data', (t.body -> 'after') - 'holder' - 'lane' - 'join_seq'
                || jsonb_build_object('version', t.body -> 'version'))::text
    FROM told t
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.body ->> 'type' = 'order.cancelled' AND t.body #>> '{after,status}' = 'expired'
            THEN 'order.expired' ELSE t.body ->> 'type' END AS kind
    ) k
    JOIN orders.hook h ON h.disabled_at IS NULL AND (h.event_id IS NULL OR h.event_id = t.event_id)
        AND k.kind = ANY (h.kinds)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    op.add_column(
        "checkout_command", sa.Column("caused_by", sa.Text(), server_default="system", nullable=False), schema=SCHEMA
    )
    op.create_index("ix_checkout_command_created_at", "checkout_command", ["created_at"], schema=SCHEMA)
    op.create_index(
        "ix_checkout_command_error", "checkout_command", ["created_at"], schema=SCHEMA,
        postgresql_where=sa.text("error_message IS NOT NULL"),
    )  # fmt: skip
    _operators()
    _hooks()
    op.execute(OWE)
    op.execute(
        "CREATE TRIGGER owe_deliveries AFTER INSERT ON orders.outbox REFERENCING NEW TABLE AS told "
        "FOR EACH STATEMENT EXECUTE FUNCTION orders.owe_deliveries()"
    )


def _operators() -> None:
    op.create_table(
        "checkout_share",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("background_percent", sa.Float(), nullable=False),
        sa.Column("changed_at", AT, server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("background_percent BETWEEN 0 AND 100", name=op.f("ck_checkout_share_percent")),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_checkout_share")),
        schema=SCHEMA,
    )
    op.create_table(
        "operator_change",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("at", AT, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("before", postgresql.JSONB(), nullable=True),
        sa.Column("after", postgresql.JSONB(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_change")),
        schema=SCHEMA,
    )
    op.create_index("ix_operator_change_subject", "operator_change", ["subject", "id"], schema=SCHEMA)


def _hooks() -> None:
    op.create_table(
        "hook",
        sa.Column("hook_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("kinds", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", AT, server_default=sa.text("now()"), nullable=False),
        sa.Column("failing_since", AT, nullable=True),
        sa.Column("disabled_at", AT, nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("hook_id", name=op.f("pk_hook")),
        schema=SCHEMA,
    )
    op.create_table(
        "hook_delivery",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("hook_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", AT, server_default=sa.text("now()"), nullable=False),
        sa.Column("due_at", AT, server_default=sa.text("now()"), nullable=True),
        sa.Column("lease", sa.Text(), nullable=True),
        sa.Column("lease_until", AT, nullable=True),
        sa.Column("delivered_at", AT, nullable=True),
        sa.Column("answer_status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_delivery")),
        sa.UniqueConstraint("hook_id", "message_id", name=op.f("uq_hook_delivery_hook_id_message_id")),
        schema=SCHEMA,
    )
    op.create_index("ix_hook_delivery_hook_id", "hook_delivery", ["hook_id", "id"], schema=SCHEMA)
    due, leased = sa.text("due_at IS NOT NULL"), sa.text("lease IS NOT NULL")
    op.create_index("ix_hook_delivery_due", "hook_delivery", ["hook_id", "due_at"], schema=SCHEMA, postgresql_where=due)
    op.create_index("ix_hook_delivery_leased", "hook_delivery", ["hook_id"], schema=SCHEMA, postgresql_where=leased)


def downgrade() -> None:
    op.execute("DROP TRIGGER owe_deliveries ON orders.outbox")
    op.execute("DROP FUNCTION orders.owe_deliveries()")
    for table in ("hook_delivery", "hook", "operator_change", "checkout_share"):
        op.drop_table(table, schema=SCHEMA)
    op.drop_index("ix_checkout_command_error", "checkout_command", schema=SCHEMA)
    op.drop_index("ix_checkout_command_created_at", "checkout_command", schema=SCHEMA)
    op.drop_column("checkout_command", "caused_by", schema=SCHEMA)
