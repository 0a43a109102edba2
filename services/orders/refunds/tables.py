"""The refund of a whole event, whose row is all its progress."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    Table,
    Text,
    func,
    text,
)

from services.orders.tables import metadata

_at = DateTime(timezone=True)

event_refund = Table(
    "event_refund",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False),
    Column("status", Text, CheckConstraint("status IN ('running', 'paused', 'done')", name="status"), nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("to_sale", Boolean, nullable=False),
    Column("rate_per_s", Double, CheckConstraint("rate_per_s > 0", name="rate"), nullable=False),
    Column("paced_at", _at, nullable=False, server_default=func.clock_timestamp(), comment="Paid for by its pace."),
    Column("after_reference", Text, comment="The order that was looked at last; null at the start of a pass."),
    Column("refunds", Integer, nullable=False, server_default="0"),
    Column("cancelled", Integer, nullable=False, server_default="0"),
    Column("started_at", _at, nullable=False, server_default=func.clock_timestamp()),
    Column("ended_at", _at),
    Index("uq_event_refund_open", "event_id", unique=True, postgresql_where=text("status <> 'done'")),
    Index("ix_event_refund_event_id", "event_id", "id"),
)
