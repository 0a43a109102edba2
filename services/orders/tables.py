"""The tables of the schema `orders`: orders, open orders, money entries, refunds, webhooks, mail, prices and shows.

An order is one row with all that hangs on it; no column that a sale changes is in an index, so that a sale adds no
entry to any. What is open has a row in `open_order`, written with the order, deleted when nothing is left to do. A
tombstone is a row of a reference that can never be ordered: by the primary key a late transaction loses. Tables that
every order writes have no foreign keys; the invariants check what these would guard.

`order_line`, `order_adjustment`, `payment_attempt`, `checkout_command` and `ticket` are views of what the row holds;
`charge` is one of the charges in `money_entry`, each with what of it went back.
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
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    column,
    false,
    func,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from shared.audit_log import AuditLog
from shared.messaging.outbox import outbox_tables
from shared.postgres.engine import metadata as service_metadata

metadata = service_metadata("orders")
_at = DateTime(timezone=True)
_none = text("'[]'::jsonb")
_complete = "status = 'tombstone' OR (event_id IS NOT NULL AND reservation_id IS NOT NULL AND owner_id IS NOT NULL"
_complete += " AND total_minor >= 0 AND currency IS NOT NULL AND expires_at IS NOT NULL)"
_money_kinds = "kind IN ('charge', 'refund', 'dispute', 'reinstatement')"
HOLDER_SQL = "split_part(owner_id, ':', 2)"
SIGNED_IN_SQL = f"left({HOLDER_SQL}, 5) = 'user.'"

order = Table(
    "order",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("event_id", Text),
    Column("reservation_id", Text, unique=True),
    Column("owner_id", Text),
    Column("key_hash", LargeBinary, comment="Hash of the idempotency key that created it."),
    Column("fingerprint", LargeBinary, comment="Hash of the request; another one with this key is refused."),
    Column("lane", Integer, nullable=False, server_default="0"),
    Column("join_seq", BigInteger, nullable=False, server_default="0"),
    Column("total_minor", BigInteger),
    Column("currency", Text),
    Column("customer_name", Text),
    Column("customer_phone", Text),
    Column("language", Text, nullable=False, server_default="en"),  # of its mails and papers
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("grace_s", Integer, nullable=False, server_default="0"),
    Column("traceparent", Text, comment="The trace that its steps continue; null unless its checkout was traced."),
    Column("extras", JSONB, nullable=False, server_default=_none, comment="Its discounts, fees and taxes."),
    Column("customer_email", Text),
    Column(
        "address_changes",
        Integer,
        nullable=False,
        server_default="0",
        comment="How often its buyer corrected the e-mail address.",
    ),
    Column(
        "name_changes",
        Integer,
        nullable=False,
        server_default="0",
        comment="How many names its buyer changed.",
    ),
    Column(
        "unmailed_at",
        _at,
        comment="When a mail to its buyer was given up; null again once one was sent, or the address changed.",
    ),
    Column("status", Text, nullable=False),
    Column("expires_at", _at),
    Column("extended_at", _at, comment="When its buyer was given more time to pay; possible once."),
    Column("confirmed_at", _at),
    Column("fulfilled_at", _at),
    Column("ended_at", _at),
    Column("end_reason", Text),
    Column("cancel_requested_at", _at),
    Column("released_at", _at),
    Column("charge_ref", Text),
    Column("dispute", Text, comment="The dispute of its charge as the provider last reported it: open, won or lost."),
    Column(
        "review_decision", Text, comment="Decision of an operator about an order in review: confirm, refund or expire."
    ),
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column("lines", JSONB, nullable=False, server_default=_none, comment="What was bought, each ticket by itself."),
    Column("attempts", JSONB, nullable=False, server_default=_none, comment="Each try to charge it, in order."),
    Column("journal", JSONB, nullable=False, server_default=_none, comment="What was done for it, and why."),
    CheckConstraint(_complete, name="complete"),
    UniqueConstraint("owner_id", "key_hash"),
    Index("ix_order_user", text(HOLDER_SQL), "created_at", postgresql_where=text(SIGNED_IN_SQL)),
    Index("ix_order_email", text("lower(customer_email)")),
    Index("ix_order_unmailed", "created_at", "reference", postgresql_where=text("unmailed_at IS NOT NULL")),
    Index("ix_order_created_at", "created_at", "reference"),
    Index("ix_order_event", "event_id", "created_at", "reference"),
    postgresql_with={"fillfactor": 45},
)

open_order = Table(
    "open_order",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("join_seq", BigInteger, nullable=False),
    Column("owner", Text, nullable=False, comment="The process that works on it; empty: whichever takes it."),
    Column("epoch", Integer, nullable=False, server_default="0", comment="How often it changed hands."),
    Column("wakes", BigInteger, nullable=False, server_default="0", comment="How often something was asked of it."),
    Column("woken", Boolean, nullable=False, server_default=text("false"), comment="Its owner has not looked since."),
    Column("sync_requested", Boolean, nullable=False, server_default=text("false")),
    Column("errors", Integer, nullable=False, server_default="0"),
    Column("due_at", _at, nullable=False, server_default=func.clock_timestamp()),
    Index("ix_open_order_owner", "owner"),
    Index("ix_open_order_woken", "owner", "reference", postgresql_where=text("woken")),
    postgresql_with={"fillfactor": 70},
)

process = Table(
    "process",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("beat_at", _at, nullable=False, server_default=func.clock_timestamp()),
    Column(
        "free",
        Integer,
        nullable=False,
        server_default="0",
        comment="Orders more that it can work on; below 0, how many wait.",
    ),
)

provider_comparison = Table(
    "provider_comparison",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("after_s", Integer, primary_key=True, autoincrement=False, comment="So long after a charge was made."),
    Column("compared_until", _at, nullable=False),
    Column("taken_until", _at, nullable=False, comment="Until then no other process compares."),
)

order_line = table(
    "order_line",
    *map(column, ("reference", "line_no", "section_id", "seat_id", "quantity", "unit_price_minor", "returned",
                  "paid_minor", "type_id")),
    schema="orders",
)  # fmt: skip

money_entry = Table(
    "money_entry",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("reference", Text, nullable=False),
    Column("kind", Text, CheckConstraint(_money_kinds, name="kind"), nullable=False),
    Column("amount_minor", BigInteger, CheckConstraint("amount_minor > 0", name="amount"), nullable=False),
    Column("currency", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("provider_ref", Text, nullable=False),
    Column("charge_ref", Text, nullable=False),
    Column("occurred_at", _at, nullable=False),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    UniqueConstraint("provider", "provider_ref"),
    Index("ix_money_entry_reference", "reference"),
    Index("ix_money_entry_occurred_at", "occurred_at", postgresql_using="brin"),
)

refund = Table(
    "refund",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("reference", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("charge_ref", Text, nullable=False),
    Column("amount_minor", BigInteger, CheckConstraint("amount_minor >= 0", name="amount"), nullable=False),
    Column("currency", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("idem_key", Text, nullable=False, unique=True),
    Column("status", Text, nullable=False),
    Column("command_id", UUID(as_uuid=False)),
    Column("tickets", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("return_to_sale", Boolean, nullable=False, server_default=text("false")),
    Column("returned", Text, comment="What inventory answered when the tickets were returned to it."),
    Column("key_hash", Text, comment="Hash of the idempotency key of the request, in hexadecimal."),
    Column("fingerprint", Text, comment="Hash of the request; another one with this key is refused."),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("done_at", _at),
    Index("ix_refund_reference", "reference"),
)

webhook_inbox = Table(
    "webhook_inbox",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("webhook_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("charge_ref", Text),
    Column("raw", LargeBinary, nullable=False),
    Column("received_at", _at, nullable=False, server_default=func.now()),
    Column("applied_at", _at),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("due_at", _at, nullable=False, server_default=func.now()),
    Index("ix_webhook_inbox_reference", "reference"),
    Index("ix_webhook_inbox_due", "due_at", postgresql_where=text("applied_at IS NULL")),
)


# The key of a mail says what it is about, so the same mail is queued once; its state follows from its times.
mail = Table(
    "mail",
    metadata,
    Column("mail_key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("reference", Text),
    Column("reservation_id", Text),
    Column("amount_minor", BigInteger),
    Column("language", Text),  # of a mail about a hold; an order knows its own
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("due_at", _at, nullable=False, server_default=func.now()),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column(
        "budget",
        Text,
        comment="Against which limit per address it counts: asked (at somebody's request) or own (of the order, "
        "unpaid); null: none.",
    ),
    Column("error", Text),
    Column("sent_at", _at),
    Column("abandoned_at", _at),
    CheckConstraint("(reference IS NULL) <> (reservation_id IS NULL)", name="about"),
    Index("ix_mail_due", "due_at", postgresql_where=text("sent_at IS NULL AND abandoned_at IS NULL")),
    Index("ix_mail_unsent", "reference", postgresql_where=text("sent_at IS NULL AND abandoned_at IS NULL")),
    Index("ix_mail_created_at", "created_at"),
)

outbox_batch, outbox_cursor = outbox_tables(metadata)
audit_log = AuditLog(metadata, at=func.now())  # as the rows of the same action, before which it is listed

event_price = Table(
    "event_price",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("currency", Text, nullable=False),
    Column("section_ids", JSONB, nullable=False),
    Column("rules", JSONB, nullable=False),
    Column("changed_at", _at, nullable=False, server_default=func.now()),
)

background_share = Table(
    "background_share",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column(
        "background_percent",
        Float,
        CheckConstraint("background_percent BETWEEN 0 AND 100", name="percent"),
        nullable=False,
    ),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

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
    Column(
        "price_types",
        JSONB,
        nullable=False,
        server_default=_none,
        comment="Id, name and proof of each, the usual one first.",
    ),
    Column("rehearsal", Boolean, nullable=False, server_default=false()),
    Column(
        "names",
        Text,
        nullable=False,
        server_default="none",
        comment="Names that orders bring: none, the buyer's (order), or one for each ticket (ticket).",
    ),
    Column("names_until", _at, comment="Until when buyers may change names; null: until it starts."),
    Column("applied_by", Text, nullable=False),
    Column("applied_at", _at, nullable=False, server_default=func.now()),
)
