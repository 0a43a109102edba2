"""The tables of the schema `orders`: orders, payment attempts, money entries, refunds, webhooks, commands, outbox.

A row of `order` holds its own due time and lease, so that the next step always follows from rows. A tombstone is a row
of a reference that can never be ordered: by the primary key a late transaction loses. Tables that every order writes
have no foreign keys; the invariants check what these would guard.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from shared.audit_log import AuditLog
from shared.messaging.outbox import outbox_tables
from shared.postgres.engine import metadata as service_metadata

metadata = service_metadata("orders")
_at = DateTime(timezone=True)
_complete = "status = 'tombstone' OR (event_id IS NOT NULL AND reservation_id IS NOT NULL AND owner_id IS NOT NULL"
_complete += " AND total_minor >= 0 AND currency IS NOT NULL AND expires_at IS NOT NULL)"
_money_kinds = "kind IN ('charge', 'refund', 'dispute', 'reinstatement')"
HOLDER_SQL = "split_part(owner_id, ':', 2)"
SIGNED_IN_SQL = f"left({HOLDER_SQL}, 5) = 'user.'"

order = Table(
    "order",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("event_id", Text),
    Column("reservation_id", Text),
    Column("owner_id", Text),
    Column("lane", Integer, nullable=False, server_default="0"),
    Column("join_seq", BigInteger, nullable=False, server_default="0"),
    Column("total_minor", BigInteger),
    Column("currency", Text),
    Column("customer_name", Text),
    Column("customer_email", Text),
    Column("customer_phone", Text),
    Column("language", Text, nullable=False, server_default="en"),  # of its mails and papers
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("changed_at", _at, nullable=False, server_default=func.now()),
    Column("expires_at", _at),
    Column("extended_at", _at, comment="When its buyer was given more time to pay; possible once."),
    Column("grace_s", Integer, nullable=False, server_default="0"),
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
    Column(
        "unmailed_at",
        _at,
        comment="When a mail to its buyer was given up; null again once one was sent, or the address changed.",
    ),
    Column(
        "address_changes",
        Integer,
        nullable=False,
        server_default="0",
        comment="How often its buyer corrected the e-mail address.",
    ),
    Column("wake_count", BigInteger, nullable=False, server_default="0"),
    Column("sync_requested", Boolean, nullable=False, server_default=text("false")),
    Column("errors", Integer, nullable=False, server_default="0"),
    Column("due_at", _at),
    Column(
        "routine",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Due only to be compared with the provider again: nobody waits for it.",
    ),
    Column("lease", Text),
    Column("lease_until", _at),
    Column("traceparent", Text, comment="The trace that its steps continue; null unless its checkout was traced."),
    CheckConstraint(_complete, name="complete"),
    Index("uq_order_reservation_id", "reservation_id", unique=True, postgresql_where=text("status <> 'tombstone'")),
    Index("ix_order_due", "event_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    Index("ix_order_awaited", "event_id", "due_at", postgresql_where=text("due_at IS NOT NULL AND NOT routine")),
    Index("ix_order_leased", "event_id", postgresql_where=text("lease IS NOT NULL")),
    Index("ix_order_owner_id", "owner_id", "created_at"),
    Index("ix_order_user", text(HOLDER_SQL), "created_at", postgresql_where=text(SIGNED_IN_SQL)),
    Index("ix_order_email", text("lower(customer_email)")),
    Index("ix_order_unmailed", "created_at", "reference", postgresql_where=text("unmailed_at IS NOT NULL")),
    Index("ix_order_created_at", "created_at"),
    Index("ix_order_changed_at", "changed_at", postgresql_using="brin"),
    Index("ix_order_event", "event_id", "created_at", "reference"),
)

order_line = Table(
    "order_line",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("line_no", Integer, primary_key=True, autoincrement=False),
    Column("section_id", Text, nullable=False),
    Column("seat_id", Text),
    Column("quantity", Integer, CheckConstraint("quantity > 0", name="quantity"), nullable=False),
    Column("unit_price_minor", BigInteger, nullable=False),
    Column("returned", Integer, nullable=False, server_default="0", comment="Refunded, or being refunded."),
    Column("paid_minor", BigInteger),  # null: the price
    CheckConstraint("returned BETWEEN 0 AND quantity", name="returned"),
)

order_adjustment = Table(
    "order_adjustment",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("line_no", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, CheckConstraint("kind IN ('discount', 'fee', 'tax')", name="kind"), nullable=False),
    Column("name", Text, nullable=False),
    Column("percent", Text),
    Column("amount_minor", BigInteger, nullable=False),
    Column("included", Boolean, nullable=False),
)

payment_attempt = Table(
    "payment_attempt",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("provider", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("token", Text),
    Column("return_url", Text),
    Column("amount_minor", BigInteger, nullable=False),
    Column("currency", Text, nullable=False),
    Column("provider_key", Text, nullable=False, unique=True),
    Column("provider_ref", Text),
    Column("status", Text, nullable=False),
    Column("checkout_url", Text),
    Column("reason", Text),
    Column("errors", Integer, nullable=False, server_default="0"),
    Column("capture", Boolean, nullable=False, server_default=text("true")),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("changed_at", _at, nullable=False, server_default=func.now()),
    UniqueConstraint("provider", "provider_ref"),
    Index(
        "uq_payment_attempt_live",
        "reference",
        unique=True,
        postgresql_where=text("status IN ('created', 'unknown', 'requires_action', 'processing', 'authorised')"),
    ),
    Index("ix_payment_attempt_failed", "reference", postgresql_where=text("status = 'failed'")),
)

money_entry = Table(
    "money_entry",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    Column("reference", Text, ForeignKey(order.c.reference), nullable=False),
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
    Column("reference", Text, ForeignKey(order.c.reference), nullable=False),
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

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("key_hash", LargeBinary, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("reference", Text, nullable=False),
    Column("created_at", _at, nullable=False, server_default=func.now()),
)

checkout_command = Table(
    "checkout_command",
    metadata,
    Column("command_id", UUID(as_uuid=False), primary_key=True, server_default=func.gen_random_uuid()),
    Column("reference", Text, nullable=False),
    Column("command_type", Text, nullable=False),
    Column("caused_by", Text, nullable=False, server_default="system"),
    Column("payload", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created_at", _at, nullable=False, server_default=func.now()),
    Column("processed_at", _at),
    Column("error_message", Text),
    Index("ix_checkout_command_reference", "reference"),
    Index("ix_checkout_command_created_at", "created_at"),
    Index("ix_checkout_command_error", "created_at", postgresql_where=text("error_message IS NOT NULL")),
)

outbox_batch, outbox_cursor = outbox_tables(metadata)
audit_log = AuditLog(metadata, at=func.now())  # as the rows of the same action, before which it is listed
