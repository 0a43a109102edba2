"""Fees, taxes and promo codes of an event, the uses of codes, and what an order's total is made of."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "2026_11_21_1520"
down_revision = "2026_11_21_1540"

SCHEMA = "orders"
AT = sa.DateTime(timezone=True)
NOW = sa.func.now()


def upgrade() -> None:
    op.add_column("order_line", sa.Column("paid_minor", sa.BigInteger()), schema=SCHEMA)
    op.create_table(
        "order_extra",
        sa.Column("reference", sa.Text(), sa.ForeignKey("orders.order.reference"), primary_key=True),
        sa.Column("line_no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("percent", sa.Text()),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("included", sa.Boolean(), nullable=False),
        sa.CheckConstraint("kind IN ('discount', 'fee', 'tax')", name=op.f("ck_order_extra_kind")),
        schema=SCHEMA,
    )
    op.create_table(
        "event_price",
        sa.Column("event_id", sa.Text(), primary_key=True),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("section_ids", JSONB(), nullable=False),
        sa.Column("rules", JSONB(), nullable=False),
        sa.Column("changed_at", AT, nullable=False, server_default=NOW),
        schema=SCHEMA,
    )
    _codes()
    op.create_table(
        "price_change",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=True),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("at", AT, nullable=False, server_default=NOW),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("code", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("before", JSONB()),
        sa.Column("after", JSONB()),
        schema=SCHEMA,
    )
    op.create_index("ix_price_change_event_id", "price_change", ["event_id", "id"], schema=SCHEMA)


def _codes() -> None:
    op.create_table(
        "promo_code",
        sa.Column("event_id", sa.Text(), sa.ForeignKey("orders.event_price.event_id"), primary_key=True),
        sa.Column("code", sa.Text(), primary_key=True),
        sa.Column("percent", sa.Numeric(6, 3)),
        sa.Column("amount_minor", sa.BigInteger()),
        sa.Column("uses_max", sa.Integer()),
        sa.Column("customer_uses_max", sa.Integer()),
        sa.Column("valid_from", AT),
        sa.Column("valid_until", AT),
        sa.Column("section_ids", JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb")),
        sa.Column("tickets_min", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("created_at", AT, nullable=False, server_default=NOW),
        sa.Column("stopped_at", AT),
        sa.CheckConstraint("num_nonnulls(percent, amount_minor) = 1", name=op.f("ck_promo_code_takes_off")),
        schema=SCHEMA,
    )
    op.create_table(
        "promo_use",
        sa.Column("reference", sa.Text(), sa.ForeignKey("orders.order.reference"), primary_key=True),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("customer_key", sa.Text(), nullable=False),
        sa.Column("created_at", AT, nullable=False, server_default=NOW),
        sa.ForeignKeyConstraint(["event_id", "code"], ["orders.promo_code.event_id", "orders.promo_code.code"]),
        schema=SCHEMA,
    )
    op.create_index("ix_promo_use_customer", "promo_use", ["event_id", "code", "customer_key"], schema=SCHEMA)


def downgrade() -> None:
    for table in ("price_change", "promo_use", "promo_code", "event_price", "order_extra"):
        op.drop_table(table, schema=SCHEMA)
    op.drop_column("order_line", "paid_minor", schema=SCHEMA)
