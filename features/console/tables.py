"""The tables of the schema `console`: figures, for charts, requests for a second person's approval, and used links."""

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Index, Table, Text, func
from sqlalchemy.dialects.postgresql import JSONB

from shared.postgres.engine import metadata as service_metadata

metadata = service_metadata("console")

sample = Table(
    "sample",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("at_10s", BigInteger, primary_key=True, autoincrement=False),
    Column("values", JSONB, nullable=False),
    Index("ix_sample_at", "at_10s"),
    comment="The figures of an event every ten seconds; at_10s is seconds since the epoch, a multiple of ten.",
)

approval = Table(
    "approval",
    metadata,
    Column("id", Text, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("control", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("if_match", Text),
    Column("requested_by", Text, nullable=False),
    Column("requester_fingerprint", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("decided_by", Text),
    Column("token", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    CheckConstraint("status IN ('pending', 'approved', 'refused')", name="status"),
    Index("ix_approval_event", "event_id", "expires_ms"),
    comment="Requests for a second person's approval: deleted when they have expired.",
)

used_link = Table(
    "used_link",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    comment="One-time links that were used, so that none works again.",
)
