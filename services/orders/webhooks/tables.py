"""Whom we tell of orders over the web, and what is owed to each of them.

A delivery is made by the statement that makes its event: a trigger on the outbox, so that no writer can forget it.
"""

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, Table, Text, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import ARRAY

from services.orders.tables import metadata

_at = DateTime(timezone=True)

hook = Table(
    "hook",
    metadata,
    Column("hook_id", Text, primary_key=True),
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

hook_delivery = Table(
    "hook_delivery",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("hook_id", Text, nullable=False),
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
    UniqueConstraint("hook_id", "message_id"),
    Index("ix_hook_delivery_hook_id", "hook_id", "id"),
    Index("ix_hook_delivery_due", "hook_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    Index("ix_hook_delivery_leased", "hook_id", postgresql_where=text("lease IS NOT NULL")),
)
