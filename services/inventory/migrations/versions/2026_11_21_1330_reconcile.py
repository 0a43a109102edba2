"""What reconcile found and did is kept; sections may be oversold on paper; returns wait for their refund."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "20261121_1330"
down_revision = "20261121_1320"

SCHEMA = "inventory"
HONOUR = """'{"policy": "honour", "review_percent": 5.0}'"""
NOW = sa.text("clock_timestamp()")


def _at(name: str, *, nullable: bool = True, default: sa.TextClause | None = None) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=default)


def upgrade() -> None:
    policy = sa.Column("oversell", JSONB, nullable=False, server_default=sa.text(HONOUR))
    op.add_column("event", policy, schema=SCHEMA)
    comment = "Places that exist only on paper."
    honoured = sa.Column("honoured", sa.Integer, nullable=False, server_default="0", comment=comment)
    op.add_column("section", honoured, schema=SCHEMA)
    _drift()
    _oversell()
    _returns()


def _drift() -> None:
    op.create_table(
        "drift",
        sa.Column("id", sa.BigInteger, autoincrement=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("event_id", "what", "seen", "should_be")),
        _at("since", nullable=False),
        sa.Column("done", sa.Text, nullable=False),
        _at("done_at", nullable=False, default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_drift"),
        schema=SCHEMA,
    )
    op.create_index("ix_drift_event", "drift", ["event_id", "id"], schema=SCHEMA)


def _oversell() -> None:
    comment = "Of a seat sold twice; -1 for a section sold beyond itself."
    op.create_table(
        "oversell",
        sa.Column("id", sa.BigInteger, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("section_id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False, comment=comment),
        sa.Column("excess", sa.Integer, nullable=False),
        sa.Column("percent", sa.Double, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("from_buffer", sa.Integer, nullable=False, server_default="0"),
        sa.Column("on_paper", sa.Integer, nullable=False, server_default="0"),
        _at("found_at", nullable=False, default=NOW),
        sa.Column("decided_by", sa.Text),
        sa.Column("reason", sa.Text),
        _at("ended_at"),
        sa.PrimaryKeyConstraint("id", name="pk_oversell"),
        sa.CheckConstraint(
            "status IN ('waiting', 'cancelling', 'cancelled', 'honoured', 'gone')", name=op.f("ck_oversell_status")
        ),
        schema=SCHEMA,
    )
    op.create_index(
        "uq_oversell_open", "oversell", ["event_id", "section_id", "position"], unique=True, schema=SCHEMA,
        postgresql_where=sa.text("status IN ('waiting', 'cancelling')"),
    )  # fmt: skip


def _returns() -> None:
    op.create_table(
        "oversell_return",
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("reservation_id", sa.Text, nullable=False),
        sa.Column("oversell_id", sa.BigInteger, nullable=False),
        sa.Column("order_reference", sa.Text, nullable=False),
        _at("returned_at"),
        sa.Column("refund", sa.Text, comment="What orders answered."),
        _at("refunded_at"),
        sa.PrimaryKeyConstraint("event_id", "reservation_id", name="pk_oversell_return"),
        schema=SCHEMA,
        comment="Sold, and to be given back: rows are the truth, each step may be repeated.",
    )
    op.create_index(
        "ix_oversell_return_due", "oversell_return", ["event_id"], schema=SCHEMA,
        postgresql_where=sa.text("refunded_at IS NULL"),
    )  # fmt: skip


def downgrade() -> None:
    for table in ("oversell_return", "oversell", "drift"):
        op.drop_table(table, schema=SCHEMA)
    op.drop_column("section", "honoured", schema=SCHEMA)
    op.drop_column("event", "oversell", schema=SCHEMA)
