"""The tables of the schema `console`: samples of figures, for charts."""

from sqlalchemy import BigInteger, Column, Index, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from shared.postgres.engine import metadata as service_metadata

metadata = service_metadata("console")

sample = Table(
    "sample",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("at_10s", BigInteger, primary_key=True, autoincrement=False),
    Column("values", JSONB, nullable=False),
    Index("ix_sample_at", "at_10s"),
    comment="The figures of an event every ten seconds; at_10s is seconds since the epoch, a multiple of ten.",
)
