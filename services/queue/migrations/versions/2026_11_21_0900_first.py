"""The line's ledger: rooms, lanes, places, calls, audit, offsets, outbox."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "2026_11_21_0900"
down_revision = None

SCHEMA = "queue"
NOW = sa.func.clock_timestamp()


def upgrade() -> None:
    op.create_table(
        "room",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("fill", sa.BigInteger, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("queue_opens_at", sa.DateTime(timezone=True)),
        sa.Column("sale_starts_at", sa.DateTime(timezone=True)),
        sa.Column("sale_ends_at", sa.DateTime(timezone=True)),
        sa.Column("ordering", sa.Text, nullable=False),
        sa.Column("rate_per_s", sa.Double, nullable=False),
        sa.Column("burst", sa.Integer, nullable=False),
        sa.Column("max_active", sa.Integer, nullable=False),
        sa.Column("session_s", sa.Integer, nullable=False),
        sa.Column("claim_window_s", sa.Integer, nullable=False),
        sa.Column("liveness_window_s", sa.Integer, nullable=False),
        sa.Column("max_misses", sa.Integer, nullable=False),
        sa.Column("returning_share", sa.Double, nullable=False),
        sa.Column("max_line", sa.Integer),
        sa.Column("tickets_per_order", sa.Integer, nullable=False),
        sa.Column("stock_coupling", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_room"),
        sa.CheckConstraint("state IN ('draft', 'open', 'paused', 'draining', 'closed')", name="ck_room_state"),
        schema=SCHEMA,
    )
    op.create_table(
        "lane",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("lane", sa.SmallInteger),
        sa.Column("head_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "epoch", "lane", name="pk_lane"),
        schema=SCHEMA,
    )
    op.create_table(
        "place",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("lane", sa.SmallInteger),
        sa.Column("join_seq", sa.BigInteger),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("bought_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("how", sa.Text),
        sa.PrimaryKeyConstraint("event_id", "epoch", "lane", "join_seq", name="pk_place"),
        sa.CheckConstraint("(ended_at IS NULL) = (how IS NULL)", name="ck_place_ended_how"),
        sa.CheckConstraint("how IN ('completed', 'expired', 'left')", name="ck_place_how"),
        schema=SCHEMA,
    )
    op.create_index(
        "uq_place_live_holder",
        "place",
        ["event_id", "epoch", "holder"],
        unique=True,
        schema=SCHEMA,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "admission",
        sa.Column("event_id", sa.Text),
        sa.Column("epoch", sa.Integer),
        sa.Column("lane", sa.SmallInteger),
        sa.Column("join_seq", sa.BigInteger),
        sa.Column("call", sa.Integer),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("deadline_ms", sa.BigInteger),
        sa.Column("jti", sa.Text),
        sa.Column("expires_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("event_id", "epoch", "lane", "join_seq", "call", name="pk_admission"),
        sa.CheckConstraint("state IN ('called', 'claimed', 'missed', 'ended')", name="ck_admission_state"),
        sa.CheckConstraint(
            "state <> 'claimed' OR (jti IS NOT NULL AND expires_at_ms IS NOT NULL)", name="ck_admission_claimed_pass"
        ),
        schema=SCHEMA,
    )
    _audit_and_outbox()


def _audit_and_outbox() -> None:
    op.create_table(
        "room_change",
        sa.Column("id", sa.BigInteger, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("before", JSONB),
        sa.Column("after", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_room_change"),
        schema=SCHEMA,
    )
    op.create_index("ix_room_change_event_id", "room_change", ["event_id", "id"], schema=SCHEMA)
    op.create_table(
        "log_offset",
        sa.Column("stream", sa.Text),
        sa.Column("last_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("stream", name="pk_log_offset"),
        schema=SCHEMA,
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger, autoincrement=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("body", JSONB, nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        schema=SCHEMA,
    )
    op.create_index(
        "ix_outbox_unpublished", "outbox", ["id"], schema=SCHEMA, postgresql_where=sa.text("published_at IS NULL")
    )
    op.create_table(
        "outbox_lease",
        sa.Column("name", sa.Text),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_outbox_lease"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    for table in ("outbox_lease", "outbox", "log_offset", "room_change", "admission", "place", "lane", "room"):
        op.drop_table(table, schema=SCHEMA)
