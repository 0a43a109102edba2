"""Tables in the schema `orders`. There is no counter of a code's uses: those are counted whose order is sold, or may
still be.
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
    Numeric,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from services.orders.tables import event_price, metadata

_at = DateTime(timezone=True)

promo_code = Table(
    "promo_code",
    metadata,
    Column("event_id", Text, ForeignKey(event_price.c.event_id), primary_key=True),
    Column("code", Text, primary_key=True),
    Column("written", Text),
    Column("percent", Numeric(6, 3)),
    Column("amount_minor", BigInteger),
    Column("uses_max", Integer),
    Column("customer_uses_max", Integer),
    Column("valid_from", _at),
    Column("valid_until", _at),
    Column("section_ids", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("tickets_min", Integer, nullable=False, server_default="1"),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("stopped_at", _at),
    CheckConstraint("num_nonnulls(percent, amount_minor) = 1", name="takes_off"),
)

promo_redemption = Table(
    "promo_redemption",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("customer_key", Text, nullable=False),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    ForeignKeyConstraint(["event_id", "code"], [promo_code.c.event_id, promo_code.c.code]),
    Index("ix_promo_redemption_created_at", "event_id", "code", "created_at", "reference"),
    Index("ix_promo_redemption_customer", "event_id", "code", "customer_key"),
)
