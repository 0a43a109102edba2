"""The first shape of the ledger."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261121_0900"
down_revision = None
branch_labels = None
depends_on = None

LIVE = "status IN ('pending_payment', 'paying')"


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("event_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("venue", sa.Text, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hold_ttl_s", sa.Integer, nullable=False),
        sa.Column("pay_ttl_s", sa.Integer, nullable=False),
        sa.Column("grace_s", sa.Integer, nullable=False),
        sa.Column("tickets_per_order", sa.Integer, nullable=False),
        sa.Column("tickets_per_customer", sa.Integer, nullable=False),
        sa.Column("active_reservations_per_customer", sa.Integer, nullable=False),
        sa.Column("open_orders_per_customer", sa.Integer, nullable=False),
        sa.Column("gate_epoch", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
        schema="inventory",
    )
    op.create_table(
        "section",
        sa.Column("event_id", sa.Text),
        sa.Column("section_id", sa.Text),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("seats_per_row", sa.Integer, nullable=False),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("seats_remaining", sa.Integer, nullable=False),
        sa.Column("price_minor", sa.Integer, nullable=False),
        sa.Column("fee_minor", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("event_id", "section_id"),
        sa.CheckConstraint("seats_remaining >= 0", name="never_oversold"),
        sa.CheckConstraint("seats_remaining <= capacity", name="never_more_than_there_is"),
        schema="inventory",
    )
    op.create_table(
        "seat",
        sa.Column("event_id", sa.Text),
        sa.Column("section_id", sa.Text),
        sa.Column("position", sa.Integer),
        sa.Column("row", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False, server_default="available"),
        sa.Column("reservation_id", sa.Text),
        sa.PrimaryKeyConstraint("event_id", "section_id", "position"),
        sa.CheckConstraint(
            "(status IN ('held', 'sold')) = (reservation_id IS NOT NULL)", name="owned_while_held_or_sold"
        ),
        schema="inventory",
    )
    op.create_table(
        "reservation",
        sa.Column("event_id", sa.Text),
        sa.Column("reservation_id", sa.Text),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("email", sa.Text),
        sa.Column("lane", sa.Integer, nullable=False, server_default="0"),
        sa.Column("join_seq", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("total_minor", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("order_reference", sa.Text),
        sa.Column("customer_key", sa.Text),
        sa.Column("reserved_until_ms", sa.BigInteger, nullable=False),
        sa.Column("extended", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("payment_extended", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        sa.Column("confirmed_at", sa.DateTime(timezone=True)),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("event_id", "reservation_id"),
        sa.UniqueConstraint("reservation_id"),
        schema="inventory",
    )
    op.create_table(
        "reservation_seat",
        sa.Column("event_id", sa.Text),
        sa.Column("reservation_id", sa.Text),
        sa.Column("section_id", sa.Text),
        sa.Column("position", sa.Integer),
        sa.Column("unit_price_minor", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "reservation_id", "section_id", "position"),
        schema="inventory",
    )
    op.create_table(
        "reservation_ga",
        sa.Column("event_id", sa.Text),
        sa.Column("reservation_id", sa.Text),
        sa.Column("section_id", sa.Text),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("unit_price_minor", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "reservation_id", "section_id"),
        sa.CheckConstraint("quantity > 0", name="some"),
        schema="inventory",
    )
    op.create_table(
        "customer_usage",
        sa.Column("event_id", sa.Text),
        sa.Column("customer_key", sa.Text),
        sa.Column("payments_begun", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("event_id", "customer_key"),
        comment="Locked while a customer's tickets are counted, so that parallel payments of one customer take turns.",
        schema="inventory",
    )
    op.create_table(
        "revoked_pass",
        sa.Column("event_id", sa.Text),
        sa.Column("jti", sa.Text),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "jti"),
        schema="inventory",
    )
    op.create_table(
        "release_log",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("reservation_id", sa.Text, nullable=False),
        sa.Column("section_id", sa.Text),
        sa.Column("positions", postgresql.ARRAY(sa.Integer), nullable=False),
        sa.Column("ga_quantity", sa.Integer, nullable=False),
        sa.Column("how", sa.Text, nullable=False),
        sa.Column("late_ms", sa.BigInteger, nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
        schema="inventory",
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("body", postgresql.JSONB, nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True)),
        schema="inventory",
    )
    op.create_table(
        "outbox_lease",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        schema="inventory",
    )
    op.create_index(
        "ix_reservation_due",
        "reservation",
        ["event_id", "reserved_until_ms"],
        schema="inventory",
        postgresql_where=sa.text(LIVE),
    )
    op.create_index(
        "ix_reservation_live_holder",
        "reservation",
        ["event_id", "holder"],
        schema="inventory",
        postgresql_where=sa.text(LIVE),
    )
    op.create_index(
        "ix_reservation_customer",
        "reservation",
        ["event_id", "customer_key"],
        schema="inventory",
        postgresql_where=sa.text("customer_key IS NOT NULL"),
    )
    op.create_index("ix_release_log_event", "release_log", ["event_id", "id"], schema="inventory")
    op.create_index(
        "ix_outbox_unpublished", "outbox", ["id"], schema="inventory", postgresql_where=sa.text("published_at IS NULL")
    )


def downgrade() -> None:
    for table in (
        "outbox_lease",
        "outbox",
        "release_log",
        "revoked_pass",
        "customer_usage",
        "reservation_ga",
        "reservation_seat",
        "reservation",
        "seat",
        "section",
        "event",
    ):
        op.drop_table(table, schema="inventory")
