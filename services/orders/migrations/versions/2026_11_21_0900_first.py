"""The first tables of orders, the job engine's tables beside them, and a guard that keeps money entries append-only."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from services.orders.processing.job_queue import install_sql, uninstall_sql

revision = "2026_11_21_0900"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "outbox_lease", "outbox", "checkout_command", "idempotency", "webhook_inbox", "refund", "money_entry",
    "payment_attempt", "order_line", "order",
)  # fmt: skip
COMPLETE = (
    "status = 'tombstone' OR (event_id IS NOT NULL AND reservation_id IS NOT NULL AND principal IS NOT NULL"
    " AND total_minor >= 0 AND currency IS NOT NULL AND expires_at IS NOT NULL)"
)
APPEND_ONLY = """
CREATE FUNCTION orders.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'money entries are append-only';
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "checkout_command",
        sa.Column("command_id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("command_type", sa.Text(), nullable=False),
        sa.Column(
            "payload", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("processed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("command_id", name=op.f("pk_checkout_command")),
        schema="orders",
    )
    op.create_index("ix_checkout_command_reference", "checkout_command", ["reference"], unique=False, schema="orders")
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key_hash", name=op.f("pk_idempotency")),
        schema="orders",
    )
    op.create_table(
        "order",
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.Text(), nullable=True),
        sa.Column("principal", sa.Text(), nullable=True),
        sa.Column("lane", sa.Integer(), server_default="0", nullable=False),
        sa.Column("join_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("total_minor", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("customer_name", sa.Text(), nullable=True),
        sa.Column("customer_email", sa.Text(), nullable=True),
        sa.Column("customer_phone", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("grace_s", sa.Integer(), server_default="0", nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("cancel_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("charge_ref", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("nudge", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("hinted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            COMPLETE,
            name=op.f("ck_order_complete"),
        ),
        sa.PrimaryKeyConstraint("reference", name=op.f("pk_order")),
        schema="orders",
    )
    op.create_index("ix_order_changed_at", "order", ["changed_at"], unique=False, schema="orders")
    op.create_index("ix_order_created_at", "order", ["created_at"], unique=False, schema="orders")
    op.create_index(
        "ix_order_due",
        "order",
        ["event_id", "due_at"],
        unique=False,
        schema="orders",
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_order_leased",
        "order",
        ["event_id"],
        unique=False,
        schema="orders",
        postgresql_where=sa.text("lease IS NOT NULL"),
    )
    op.create_index("ix_order_principal", "order", ["principal", "created_at"], unique=False, schema="orders")
    op.create_index(
        "uq_order_reservation_id",
        "order",
        ["reservation_id"],
        unique=True,
        schema="orders",
        postgresql_where=sa.text("status <> 'tombstone'"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        schema="orders",
    )
    op.create_index(
        "ix_outbox_unpublished",
        "outbox",
        ["id"],
        unique=False,
        schema="orders",
        postgresql_where=sa.text("published_at IS NULL"),
    )
    op.create_table(
        "outbox_lease",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_outbox_lease")),
        schema="orders",
    )
    op.create_table(
        "webhook_inbox",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("provider", "webhook_id", name=op.f("pk_webhook_inbox")),
        schema="orders",
    )
    op.create_index(
        "ix_webhook_inbox_due",
        "webhook_inbox",
        ["due_at"],
        unique=False,
        schema="orders",
        postgresql_where=sa.text("applied_at IS NULL"),
    )
    op.create_table(
        "money_entry",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=False),
        sa.Column("charge_ref", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["reference"], ["orders.order.reference"], name=op.f("fk_money_entry_reference")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_money_entry")),
        sa.UniqueConstraint("provider", "provider_ref", name=op.f("uq_money_entry_provider_provider_ref")),
        schema="orders",
    )
    op.create_index("ix_money_entry_reference", "money_entry", ["reference"], unique=False, schema="orders")
    op.create_table(
        "order_line",
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("line_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("section_id", sa.Text(), nullable=False),
        sa.Column("seat_id", sa.Text(), nullable=True),
        sa.Column("quantity", sa.Integer(), nullable=False),
        sa.Column("unit_price_minor", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["reference"], ["orders.order.reference"], name=op.f("fk_order_line_reference")),
        sa.PrimaryKeyConstraint("reference", "line_no", name=op.f("pk_order_line")),
        schema="orders",
    )
    op.create_table(
        "payment_attempt",
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("return_url", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("checkout_url", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["reference"], ["orders.order.reference"], name=op.f("fk_payment_attempt_reference")),
        sa.PrimaryKeyConstraint("reference", "n", name=op.f("pk_payment_attempt")),
        sa.UniqueConstraint("provider", "provider_ref", name=op.f("uq_payment_attempt_provider_provider_ref")),
        sa.UniqueConstraint("provider_key", name=op.f("uq_payment_attempt_provider_key")),
        schema="orders",
    )
    op.create_index(
        "uq_payment_attempt_live",
        "payment_attempt",
        ["reference"],
        unique=True,
        schema="orders",
        postgresql_where=sa.text("status IN ('created', 'unknown', 'requires_action', 'processing')"),
    )
    op.create_table(
        "refund",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("charge_ref", sa.Text(), nullable=False),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("idem_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["reference"], ["orders.order.reference"], name=op.f("fk_refund_reference")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refund")),
        sa.UniqueConstraint("idem_key", name=op.f("uq_refund_idem_key")),
        schema="orders",
    )
    op.create_index("ix_refund_reference", "refund", ["reference"], unique=False, schema="orders")
    op.execute(APPEND_ONLY)
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON orders.money_entry "
        "FOR EACH STATEMENT EXECUTE FUNCTION orders.refuse_change()"
    )
    _run_script(install_sql())


def downgrade() -> None:
    _run_script(uninstall_sql())
    for table in TABLES:
        op.drop_table(table, schema="orders")
    op.execute("DROP FUNCTION orders.refuse_change()")


def _run_script(script: str) -> None:
    """Several statements at once, which only the driver itself takes; they join the migration's transaction."""
    op.get_bind().connection.run_async(lambda driver: driver.execute(script))
