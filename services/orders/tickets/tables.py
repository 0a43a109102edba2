"""The tables of shows and of issued tickets.

A ticket is one admission of one order line; its primary key is why none is ever issued twice.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    false,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB

from services.orders.tables import metadata, order_line

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

ticket = Table(
    "ticket",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("line_no", Integer, primary_key=True, autoincrement=False),
    Column("n", Integer, CheckConstraint("n > 0", name="n"), primary_key=True, autoincrement=False),
    Column("event_id", Text, nullable=False),
    Column("ticket_id", Text, nullable=False),
    Column("issued_at", _at, nullable=False, server_default=func.now()),
    Column("void_at", _at),
    Column("void_reason", Text),
    ForeignKeyConstraint(["reference", "line_no"], [order_line.c.reference, order_line.c.line_no]),
    UniqueConstraint("event_id", "ticket_id"),
)
