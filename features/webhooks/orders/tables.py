"""The tables of webhook endpoints and of what is sent to them, in the schema of orders."""

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, Table, Text, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import ARRAY

from services.orders.tables import metadata

_at = DateTime(timezone=True)

webhook_endpoint = Table(
    "webhook_endpoint",
    metadata,
    Column("endpoint_id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("kinds", ARRAY(Text), nullable=False),
    Column("event_id", Text),
    Column("description", Text),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("failing_since", _at),
    Column("disabled_at", _at),
    Column("disabled_reason", Text),
)

webhook_delivery = Table(
    "webhook_delivery",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("endpoint_id", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("status", Text, nullable=False, server_default="pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("due_at", _at, server_default=func.now()),
    Column("lease", Text),
    Column("lease_until", _at),
    Column("delivered_at", _at),
    Column("answer_status", Integer),
    Column("error", Text),
    UniqueConstraint("endpoint_id", "message_id"),
    Index("ix_webhook_delivery_endpoint_id", "endpoint_id", "id"),
    Index("ix_webhook_delivery_due", "endpoint_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    Index("ix_webhook_delivery_leased", "endpoint_id", postgresql_where=text("lease IS NOT NULL")),
)
