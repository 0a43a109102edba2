"""What operators set about an event's checkout, and the audit trail of what they did."""

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Float, Index, Table, Text, func
from sqlalchemy.dialects.postgresql import JSONB

from services.orders.tables import metadata

_at = DateTime(timezone=True)

checkout_share = Table(
    "checkout_share",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column(
        "background_percent",
        Float,
        CheckConstraint("background_percent BETWEEN 0 AND 100", name="percent"),
        nullable=False,
    ),
    Column("changed_at", _at, nullable=False, server_default=func.now()),
)

operator_change = Table(
    "operator_change",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("at", _at, nullable=False, server_default=func.now()),
    Column("actor", Text, nullable=False),
    Column("role", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text),
    Column("before", JSONB),
    Column("after", JSONB),
    Index("ix_operator_change_subject", "subject", "id"),
)
