"""Tickets that one order gave back, some at a time: the row that makes a repeated call the same return."""

from sqlalchemy import Boolean, Column, DateTime, PrimaryKeyConstraint, Table, Text, func
from sqlalchemy.dialects.postgresql import JSONB

from services.inventory.tables import metadata

ticket_return = Table(
    "ticket_return",
    metadata,
    Column("event_id", Text),
    Column("return_id", Text),
    Column("reservation_id", Text, nullable=False),
    Column("places", JSONB, nullable=False),
    Column("kept_blocked", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("returned_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    PrimaryKeyConstraint("event_id", "return_id"),
)
