"""The tables of mail to send, of what each recipient got today, and of customers who opted out of reminders.

The key of a mail says what it is about, so the same mail is queued once; its state follows from its times.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Index,
    Integer,
    Table,
    Text,
    func,
    text,
)

from services.orders.tables import metadata

_at = DateTime(timezone=True)

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

mail_recipient = Table(
    "mail_recipient",
    metadata,
    Column("recipient", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("mails", Integer, nullable=False),
    Index("ix_mail_recipient_day", "day"),
)

mail_opt_out = Table(
    "mail_opt_out",
    metadata,
    Column("customer", Text, primary_key=True),
    Column("created_at", _at, nullable=False, server_default=func.now()),
)
