"""The table of the background share of each event's checkouts."""

from sqlalchemy import CheckConstraint, Column, DateTime, Float, Table, Text, func

from services.orders.tables import metadata

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
