"""The queue's tables: rooms, lanes, places, calls and the audit log.

Redis can be rebuilt from them alone.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from shared.audit_log import AuditLog
from shared.messaging.outbox import outbox_tables
from shared.postgres.engine import metadata as schema_metadata

metadata = schema_metadata("queue")

room = Table(
    "room",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("redis_instance_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("message", Text),
    Column("queue_opens_at", DateTime(timezone=True)),
    Column("sale_starts_at", DateTime(timezone=True)),
    Column("sale_ends_at", DateTime(timezone=True)),
    Column("ordering", Text, nullable=False),
    Column("rate_per_s", Double, nullable=False),
    Column("burst", Integer, nullable=False),
    Column("max_active", Integer, nullable=False),
    Column("session_s", Integer, nullable=False),
    Column("claim_window_s", Integer, nullable=False),
    Column("liveness_window_s", Integer, nullable=False),
    Column("max_misses", Integer, nullable=False),
    Column("returning_share", Double, nullable=False),
    Column("max_line", Integer),
    Column("tickets_per_order", Integer, nullable=False),
    Column("stock_coupling", Boolean, nullable=False),
    Column("options", JSONB, nullable=False, server_default=text("'{}'")),
    CheckConstraint("state IN ('draft', 'open', 'paused', 'draining', 'closed')", name="state"),
)

lane = Table(
    "lane",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("lane", SmallInteger, primary_key=True),
    Column("head_seq", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False, server_default=text("0")),
    Column("contended_calls", BigInteger, nullable=False, server_default=text("0")),
    Column("fair_share", Double, nullable=False, server_default=text("0")),
    Column("contention_periods", BigInteger, nullable=False, server_default=text("0")),
)

place = Table(
    "place",
    metadata,
    Column("event_id", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("lane", SmallInteger, nullable=False),
    Column("join_seq", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("user_id", Text),
    Column("joined_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("bought_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("end_reason", Text),
    Index(
        "uq_place_live_holder", "event_id", "epoch", "holder", unique=True, postgresql_where=text("ended_at IS NULL")
    ),
    Index("ix_place_bought", "event_id", "epoch", postgresql_where=text("bought_at IS NOT NULL AND ended_at IS NULL")),
    Index("ix_place_user", "event_id", "epoch", "holder", postgresql_where=text("left(holder, 5) = 'user.'")),
    # Lane before epoch: a holder is looked up by event and epoch too, and before the table has statistics the planner
    # would hold this key for as good an index for it, and read the whole line.
    PrimaryKeyConstraint("event_id", "lane", "epoch", "join_seq", name="pk_place"),
    CheckConstraint("(ended_at IS NULL) = (end_reason IS NULL)", name="ended_with_reason"),
    CheckConstraint("end_reason IN ('completed', 'expired', 'left')", name="end_reason"),
)

admission = Table(
    "admission",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("lane", SmallInteger, primary_key=True),
    Column("join_seq", BigInteger, primary_key=True),
    Column("call", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("deadline_ms", BigInteger),
    Column("jti", Text),
    Column("expires_at_ms", BigInteger),
    Column("extended", Boolean, nullable=False, server_default=text("false")),
    Column("called_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    # True of every call, but only for those who say so: without statistics the planner would look up places in it.
    Index("ix_admission_called", "event_id", "epoch", "called_at", postgresql_where=text("call > 0")),
    CheckConstraint("state IN ('called', 'claimed', 'missed', 'ended')", name="state"),
    CheckConstraint("state <> 'claimed' OR (jti IS NOT NULL AND expires_at_ms IS NOT NULL)", name="claimed_pass"),
)

audit_log = AuditLog(metadata)

admit_key = Table(
    "admit_key",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("key_hash", LargeBinary, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("called", Integer),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    comment="Idempotency keys of manual admissions of the last day; `called` is null until the fans were called.",
)

log_offset = Table(
    "log_offset",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("last_id", Text, nullable=False),
)

outbox_batch, outbox_cursor = outbox_tables(metadata)
