"""Refunds of an amount, of tickets and of whole events; what operators do, kept for good; settlement by day."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_1530"
down_revision = "2026_11_21_1500"

SCHEMA = "orders"
NOW = sa.text("clock_timestamp()")


def _at(name: str, **options: object) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), **options)  # type: ignore[arg-type]


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def upgrade() -> None:
    decided = "What an operator decided about a review: confirm, refund or expire."
    op.add_column("order", sa.Column("decided", sa.Text(), comment=decided), schema=SCHEMA)
    op.create_index("ix_order_event", "order", ["event_id", "created_at", "reference"], schema=SCHEMA)
    returned = sa.Column("returned", sa.Integer(), nullable=False, server_default="0",
                         comment="Given back, or on their way.")  # fmt: skip
    op.add_column("order_line", returned, schema=SCHEMA)
    op.create_check_constraint(
        op.f("ck_order_line_returned"), "order_line", "returned BETWEEN 0 AND quantity", schema=SCHEMA
    )
    _refund()
    op.create_index(
        "ix_money_entry_occurred_at", "money_entry", ["occurred_at"], schema=SCHEMA, postgresql_using="brin"
    )
    _desk_action()
    _event_refund()


def _refund() -> None:
    op.drop_constraint(op.f("ck_refund_amount"), "refund", schema=SCHEMA, type_="check")
    op.create_check_constraint(op.f("ck_refund_amount"), "refund", "amount_minor >= 0", schema=SCHEMA)
    op.add_column("refund", sa.Column("command_id", sa.UUID(as_uuid=False)), schema=SCHEMA)
    tickets = sa.Column("tickets", postgresql.JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb"))
    op.add_column("refund", tickets, schema=SCHEMA)
    to_sale: sa.Column[bool] = sa.Column("to_sale", sa.Boolean(), nullable=False, server_default=sa.text("false"))
    op.add_column("refund", to_sale, schema=SCHEMA)
    answered = "What inventory answered when it was given the tickets back."
    op.add_column("refund", sa.Column("returned", sa.Text(), comment=answered), schema=SCHEMA)


def _desk_action() -> None:
    op.create_table(
        "desk_action",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        _at("at", nullable=False, server_default=sa.func.now()),
        *_texts("event_id"),
        sa.Column("reference", sa.Text(), comment="Null for what was done to a whole event."),
        *_texts("actor", "role", "action", "reason"),
        sa.Column("before", sa.Text(), nullable=False, comment="The status before."),
        sa.Column("details", postgresql.JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_desk_action")),
        schema=SCHEMA,
    )
    op.create_index("ix_desk_action_reference", "desk_action", ["reference"], schema=SCHEMA)
    op.create_index("ix_desk_action_event_id", "desk_action", ["event_id", "id"], schema=SCHEMA)


def _event_refund() -> None:
    op.create_table(
        "event_refund",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        *_texts("event_id", "status", "reason", "asked_by", "role"),
        sa.Column("to_sale", sa.Boolean(), nullable=False),
        sa.Column("rate_per_s", sa.Double(), nullable=False),
        _at("paced_at", nullable=False, server_default=NOW, comment="Paid for by its pace."),
        sa.Column(
            "after_reference", sa.Text(), comment="The order that was looked at last; null at the start of a pass."
        ),
        sa.Column("refunds", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("cancelled", sa.Integer(), nullable=False, server_default="0"),
        _at("started_at", nullable=False, server_default=NOW),
        _at("ended_at"),
        sa.CheckConstraint("status IN ('running', 'paused', 'done')", name=op.f("ck_event_refund_status")),
        sa.CheckConstraint("rate_per_s > 0", name=op.f("ck_event_refund_rate")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_refund")),
        schema=SCHEMA,
    )
    op.create_index(
        "uq_event_refund_open", "event_refund", ["event_id"], unique=True, schema=SCHEMA,
        postgresql_where=sa.text("status <> 'done'"),
    )  # fmt: skip
    op.create_index("ix_event_refund_event_id", "event_refund", ["event_id", "id"], schema=SCHEMA)


def downgrade() -> None:
    op.drop_table("event_refund", schema=SCHEMA)
    op.drop_table("desk_action", schema=SCHEMA)
    op.drop_index("ix_money_entry_occurred_at", "money_entry", schema=SCHEMA)
    for name in ("returned", "to_sale", "tickets", "command_id"):
        op.drop_column("refund", name, schema=SCHEMA)
    op.drop_constraint(op.f("ck_refund_amount"), "refund", schema=SCHEMA, type_="check")
    op.create_check_constraint(
        op.f("ck_refund_amount"), "refund", "amount_minor > 0", schema=SCHEMA, postgresql_not_valid=True
    )
    op.drop_column("order_line", "returned", schema=SCHEMA)
    op.drop_index("ix_order_event", "order", schema=SCHEMA)
    op.drop_column("order", "decided", schema=SCHEMA)
