"""Inventory's tables in PostgreSQL, which durably record who has what and refuse to oversell on their own.

No foreign keys on the hot path; reconciliation checks what they would. Deadlines are integer milliseconds (`_ms`);
other times are for people. Comments here are the same as in the migration.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from shared.audit_log import AuditLog
from shared.messaging.outbox import outbox_tables
from shared.postgres.engine import metadata as schema_metadata

metadata = schema_metadata("inventory")
LIVE = "status IN ('pending_payment', 'paying')"
HONOUR = """'{"policy": "honour", "review_percent": 5.0}'"""

event = Table(
    "event",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("venue", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("starts_at", DateTime(timezone=True), nullable=False),
    Column("ends_at", DateTime(timezone=True), comment="When the show ends, if its event file says so."),
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("hold_ttl_s", Integer, nullable=False),
    Column("pay_ttl_s", Integer, nullable=False),
    Column("grace_s", Integer, nullable=False),
    Column("tickets_per_order", Integer, nullable=False),
    Column("tickets_per_customer", Integer, nullable=False),
    Column("active_reservations_per_customer", Integer, nullable=False),
    Column("open_orders_per_customer", Integer, nullable=False),
    Column("tour_id", Text),
    Column(
        "tour_tickets_per_customer",
        Integer,
        nullable=False,
        server_default="0",
        comment="Limit over all events of the tour.",
    ),
    Column("avoid_single_seats", Boolean, nullable=False, server_default=text("true")),
    Column("single_seats", Text, nullable=False, server_default="tell"),
    Column("hold_ttl_b_s", Integer),
    Column("hold_ttl_b_percent", Float, nullable=False, server_default="0"),
    Column("oversell", JSONB, nullable=False, server_default=text(HONOUR)),
    Column("price_types", JSONB, nullable=False, server_default=text("'[]'"), comment="As in the event file."),
    Column("accessible_release_at", DateTime(timezone=True)),
    Column("accessible_released_at", DateTime(timezone=True)),
    Column("hall_map", JSONB(none_as_null=True), comment="The map of the event file; null if it has none."),
    Column("brand", JSONB(none_as_null=True), comment="The brand of the event file; null if it has none."),
    Column("redis_epoch", BigInteger, nullable=False, server_default="0"),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Column("min_pass_epoch", Integer, nullable=False, server_default="0"),
    Column("rehearsal", Boolean, nullable=False, server_default=text("false")),
    Column(
        "names",
        Text,
        nullable=False,
        server_default="none",
        comment="Names that orders bring: none, the buyer's (order), or one for each ticket (ticket).",
    ),
    Column(
        "names_until", DateTime(timezone=True), comment="Until when buyers may change names; null: until it starts."
    ),
    Index("ix_event_tour", "tour_id", postgresql_where=text("tour_id IS NOT NULL")),
)

section = Table(
    "section",
    metadata,
    Column("event_id", Text),
    Column("section_id", Text),
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("seats_per_row", Integer, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("seats_remaining", Integer, nullable=False),
    Column(
        "blocked",
        Integer,
        nullable=False,
        server_default="0",
        comment="Places not on sale: blocked manually or allotted.",
    ),
    Column(
        "overbooked_accepted",
        Integer,
        nullable=False,
        server_default="0",
        comment="Places sold beyond the capacity and accepted by the oversell policy.",
    ),
    Column("price_minor", Integer, nullable=False),
    Column("fee_minor", Integer, nullable=False),
    Column("price_levels", JSONB, nullable=False, server_default=text("'[]'")),
    Column("prices", JSONB, nullable=False, server_default=text("'{}'"), comment="Prices of price types, by type_id."),
    Column("traits", JSONB, nullable=False, server_default=text("'{}'"), comment="By trait the runs of its seats."),
    Column(
        "labels",
        JSONB(none_as_null=True),
        comment="Labels of rows and seats as in the event file; null if they are counted.",
    ),
    Column("version", BigInteger, nullable=False, server_default="1"),
    PrimaryKeyConstraint("event_id", "section_id"),
    CheckConstraint("seats_remaining >= 0", name="never_oversold"),
    CheckConstraint("seats_remaining <= capacity", name="never_more_than_there_is"),
    CheckConstraint("blocked >= 0", name="never_opened_twice"),
)

seat = Table(
    "seat",
    metadata,
    Column("event_id", Text),
    Column("section_id", Text),
    Column("position", Integer),
    Column("row", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("label", Text, comment="What stands on the chair; null: its number."),
    Column("status", Text, nullable=False, server_default="available"),
    Column("reservation_id", Text),
    Column("allotment_id", Text, comment="The allotment that has the seat, until it opens; null: none."),
    PrimaryKeyConstraint("event_id", "section_id", "position"),
    CheckConstraint("(status IN ('held', 'sold')) = (reservation_id IS NOT NULL)", name="owned_while_held_or_sold"),
    Index("ix_seat_allotted", "event_id", "allotment_id", postgresql_where=text("allotment_id IS NOT NULL")),
)

audit_log = AuditLog(metadata)

reservation = Table(
    "reservation",
    metadata,
    Column("event_id", Text),
    Column("reservation_id", Text),
    Column("holder", Text, nullable=False),
    Column("email", Text),
    Column("lane", Integer, nullable=False, server_default="0"),
    Column("join_seq", BigInteger, nullable=False, server_default="0"),
    Column("total_minor", BigInteger, nullable=False),
    Column("currency", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("order_reference", Text),
    Column("customer_key", Text),
    Column("reserved_until_ms", BigInteger, nullable=False),
    Column("extended", Boolean, nullable=False, server_default=text("false")),
    Column("payment_extended", Boolean, nullable=False, server_default=text("false")),
    Column("fingerprint", Text, nullable=False),
    Column("hold_ttl_s", Integer),
    Column("variant", Text, comment="Variant of the experiment with two hold_ttl_s: a or b."),
    Column(
        "reminders_requested",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Consent to reminders that orders has not acknowledged.",
    ),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column(
        "released_tickets",
        Integer,
        nullable=False,
        server_default="0",
        comment="Tickets that the fan released before a payment.",
    ),
    Column("payment_begun_at", DateTime(timezone=True), comment="When the first payment began."),
    Column("confirmed_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True), comment="When it ended without a sale."),
    Column("version", BigInteger, nullable=False, server_default="1"),
    PrimaryKeyConstraint("event_id", "reservation_id"),
    UniqueConstraint("reservation_id"),
    # Time before event: before the table has statistics, the planner would look up a holder in this index as well.
    Index("ix_reservation_due", "reserved_until_ms", "event_id", postgresql_where=text(LIVE)),
    Index("ix_reservation_live_holder", "event_id", "holder", postgresql_where=text(LIVE)),
    Index("ix_reservation_reminders", "reservation_id", postgresql_where=text("reminders_requested")),
    Index("ix_reservation_customer", "event_id", "customer_key", postgresql_where=text("customer_key IS NOT NULL")),
)

reservation_seat = Table(
    "reservation_seat",
    metadata,
    Column("event_id", Text),
    Column("reservation_id", Text),
    Column("section_id", Text),
    Column("position", Integer),
    Column("unit_price_minor", BigInteger, nullable=False),
    Column("type_id", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("event_id", "reservation_id", "section_id", "position"),
)

reservation_ga = Table(
    "reservation_ga",
    metadata,
    Column("event_id", Text),
    Column("reservation_id", Text),
    Column("section_id", Text),
    Column("quantity", Integer, nullable=False),
    Column("unit_price_minor", BigInteger, nullable=False),
    Column("type_id", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("event_id", "reservation_id", "section_id", "type_id"),
    CheckConstraint("quantity > 0", name="some"),
)

# Of 0.1.0, whose processes may still run while the services are exchanged; nothing reads or writes it any more.
customer_usage = Table(
    "customer_usage",
    metadata,
    Column("event_id", Text),  # or tour: and its tour, whose events are counted together
    Column("customer_key", Text),
    Column("payments_begun", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("event_id", "customer_key"),
    comment="Locked while a customer's tickets are counted, so that one customer's payments are serialised.",
)

revoked_pass = Table(
    "revoked_pass",
    metadata,
    Column("event_id", Text),
    Column("jti", Text),
    Column("expires_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("event_id", "jti"),
)

release_log = Table(
    "release_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False),
    Column("reservation_id", Text, nullable=False),
    Column("section_id", Text),
    Column("positions", ARRAY(Integer), nullable=False),
    Column("ga_quantity", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("late_ms", BigInteger, nullable=False),
    Column("released_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Index("ix_release_log_event", "event_id", "id"),
)

drift = Table(
    "drift",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("event_id", Text, nullable=False),
    Column("item", Text, nullable=False),
    Column("actual", Text, nullable=False),
    Column("expected", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("action", Text, nullable=False),
    Column("acted_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Index("ix_drift_event", "event_id", "id"),
)

outbox_batch, outbox_cursor = outbox_tables(metadata)

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
