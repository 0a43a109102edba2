"""The table of event refunds, in the schema `orders`; a row is all the progress of one."""

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
    Column("requested_by", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("return_to_sale", Boolean, nullable=False),
    Column("rate_per_s", Double, CheckConstraint("rate_per_s > 0", name="rate"), nullable=False),
    Column(
        "paced_until",
        _at,
        nullable=False,
        server_default=func.clock_timestamp(),
        comment="The time up to which the pace is used.",
    ),
    Column("after_reference", Text, comment="The last order of the pass so far; null at its start."),
    Column("refunds", Integer, nullable=False, server_default="0"),
    Column("cancelled", Integer, nullable=False, server_default="0"),
    Column("started_at", _at, nullable=False, server_default=func.clock_timestamp()),
    Column("ended_at", _at),
    Index("uq_event_refund_open", "event_id", unique=True, postgresql_where=text("status <> 'done'")),
    Index("ix_event_refund_event_id", "event_id", "id"),
)
