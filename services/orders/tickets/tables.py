"""The paper side of the schema `orders`: what a show is called, which tickets were issued, which mail is owed.

A ticket is one admission of one order line; its primary key is why none is ever issued twice. A mail is a debt: its key
says what it is about, so that it is owed once; where it stands follows from its times.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
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
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("currency", Text, nullable=False),
    Column("section_names", JSONB, nullable=False),
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

mail = Table(
    "mail",
    metadata,
    Column("mail_key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("reference", Text, ForeignKey("orders.order.reference")),
    Column("reservation_id", Text),
    Column("amount_minor", BigInteger),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("due_at", _at, nullable=False, server_default=func.now()),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("error", Text),
    Column("sent_at", _at),
    Column("given_up_at", _at),
    CheckConstraint("(reference IS NULL) <> (reservation_id IS NULL)", name="about"),
    Index("ix_mail_due", "due_at", postgresql_where=text("sent_at IS NULL AND given_up_at IS NULL")),
    Index("ix_mail_created_at", "created_at"),
)

mail_opt_out = Table(
    "mail_opt_out",
    metadata,
    Column("customer", Text, primary_key=True),
    Column("created_at", _at, nullable=False, server_default=func.now()),
)
