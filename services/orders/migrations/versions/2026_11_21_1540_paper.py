"""What a show is called, the tickets of an order, the mail that is owed, and who wants no reminders. Orders that were
confirmed before are due once more: that is how they get their tickets.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_1540"
down_revision = "2026_11_21_1530"

SCHEMA = "orders"
AT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("order", sa.Column("fulfilled_at", AT, nullable=True), schema=SCHEMA)
    _event()
    _ticket()
    _mail()
    op.create_table(
        "mail_stop",
        sa.Column("customer", sa.Text(), nullable=False),
        sa.Column("created_at", AT, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("customer", name="pk_mail_stop"),
        schema=SCHEMA,
    )
    op.execute(
        'UPDATE orders."order" SET due_at = now(), nudge = nudge + 1'
        " WHERE status IN ('confirmed', 'partially_refunded')"
    )


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("venue", sa.Text(), nullable=False),
        sa.Column("starts_at", AT, nullable=False),
        sa.Column("utc_offset_min", sa.Integer(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("section_names", postgresql.JSONB(), nullable=False),
        sa.Column("applied_by", sa.Text(), nullable=False),
        sa.Column("applied_at", AT, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_event"),
        schema=SCHEMA,
    )


def _ticket() -> None:
    op.create_table(
        "ticket",
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("line_no", sa.Integer(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("ticket_id", sa.Text(), nullable=False),
        sa.Column("issued_at", AT, server_default=sa.func.now(), nullable=False),
        sa.Column("void_at", AT, nullable=True),
        sa.Column("void_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("n > 0", name=op.f("ck_ticket_n")),
        sa.PrimaryKeyConstraint("reference", "line_no", "n", name="pk_ticket"),
        sa.ForeignKeyConstraint(
            ["reference", "line_no"],
            ["orders.order_line.reference", "orders.order_line.line_no"],
            name="fk_ticket_reference_line_no",
        ),
        sa.UniqueConstraint("event_id", "ticket_id", name="uq_ticket_event_id_ticket_id"),
        schema=SCHEMA,
    )


def _mail() -> None:
    op.create_table(
        "mail",
        sa.Column("mail_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=True),
        sa.Column("created_at", AT, server_default=sa.func.now(), nullable=False),
        sa.Column("due_at", AT, server_default=sa.func.now(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("sent_at", AT, nullable=True),
        sa.Column("given_up_at", AT, nullable=True),
        sa.CheckConstraint("(reference IS NULL) <> (reservation_id IS NULL)", name=op.f("ck_mail_about")),
        sa.PrimaryKeyConstraint("mail_key", name="pk_mail"),
        sa.ForeignKeyConstraint(["reference"], ["orders.order.reference"], name="fk_mail_reference"),
        schema=SCHEMA,
    )
    due = sa.text("sent_at IS NULL AND given_up_at IS NULL")
    op.create_index("ix_mail_due", "mail", ["due_at"], schema=SCHEMA, postgresql_where=due)
    op.create_index("ix_mail_created_at", "mail", ["created_at"], schema=SCHEMA)


def downgrade() -> None:
    for table in ("mail_stop", "mail", "ticket", "event"):
        op.drop_table(table, schema=SCHEMA)
    op.drop_column("order", "fulfilled_at", schema=SCHEMA)
