"""The table of shows."""

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Table,
    Text,
    false,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB

from services.orders.tables import metadata

_at = DateTime(timezone=True)

event = Table(
    "event",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("venue", Text, nullable=False),
    Column("starts_at", _at, nullable=False),
    Column("ends_at", _at, comment="When the show ends, if its event file says so."),
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("currency", Text, nullable=False),
    Column("section_names", JSONB, nullable=False),
    Column("rehearsal", Boolean, nullable=False, server_default=false()),
    Column("applied_by", Text, nullable=False),
    Column("applied_at", _at, nullable=False, server_default=func.now()),
)
