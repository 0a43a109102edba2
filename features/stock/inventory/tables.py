"""Tables of allotments and oversells, in inventory's schema."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from services.inventory.tables import metadata

allotment = Table(
    "allotment",
    metadata,
    Column("event_id", Text),
    Column("allotment_id", Text),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("places", JSONB, nullable=False, comment="As given by the operator: seats, rows and GA places."),
    Column("codes", JSONB, nullable=False, server_default=text("'[]'")),
    Column("lanes", JSONB, nullable=False, server_default=text("'[]'")),
    Column("opens_at_ms", BigInteger),
    Column("opened_at", DateTime(timezone=True)),
    Column("sold_before", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("event_id", "allotment_id"),
    Index("ix_allotment_due", "opens_at_ms", postgresql_where=text("opened_at IS NULL")),
)

allotment_ga = Table(
    "allotment_ga",
    metadata,
    Column("event_id", Text),
    Column("allotment_id", Text),
    Column("section_id", Text),
    Column(
        "allotted",
        Integer,
        nullable=False,
        comment="Places still allotted; they are part of the section's blocked places.",
    ),
    PrimaryKeyConstraint("event_id", "allotment_id", "section_id"),
    CheckConstraint("allotted >= 0", name="never_released_twice"),
)

oversell = Table(
    "oversell",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False),
    Column("section_id", Text, nullable=False),
    Column(
        "position",
        Integer,
        nullable=False,
        comment="Position of a seat that was sold twice; -1 for an oversold section.",
    ),
    Column("excess", Integer, nullable=False),
    Column("percent", Double, nullable=False),
    Column("policy", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("from_buffer", Integer, nullable=False, server_default="0"),
    Column("overbooked", Integer, nullable=False, server_default="0"),
    Column("found_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("decided_by", Text),
    Column("reason", Text),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("status IN ('waiting', 'cancelling', 'cancelled', 'honoured', 'gone')", name="status"),
    Index(
        "uq_oversell_open",
        "event_id",
        "section_id",
        "position",
        unique=True,
        postgresql_where=text("status IN ('waiting', 'cancelling')"),
    ),
)

oversell_return = Table(
    "oversell_return",
    metadata,
    Column("event_id", Text),
    Column("reservation_id", Text),
    Column("oversell_id", BigInteger, nullable=False),
    Column("order_reference", Text, nullable=False),
    Column("returned_at", DateTime(timezone=True)),
    Column("refund", Text, comment="The answer of orders."),
    Column("refunded_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("event_id", "reservation_id"),
    Index("ix_oversell_return_due", "event_id", postgresql_where=text("refunded_at IS NULL")),
    comment="Buyers who lose their tickets; each step of return and refund is recorded here and may be repeated.",
)
