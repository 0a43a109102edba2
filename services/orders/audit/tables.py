"""The table of the audit log."""

from sqlalchemy import BigInteger, Column, DateTime, Index, Table, Text, func
from sqlalchemy.dialects.postgresql import JSONB

from services.orders.tables import metadata

_at = DateTime(timezone=True)

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
