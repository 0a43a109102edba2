"""The transactional outbox: events commit with their change, and the relay takes them to the event log.

A transaction writes its events as one row of `outbox_batch`, a JSON array. The relay keeps one cursor for each service,
the id of the last row that the log has; events are published again by moving it back.
"""

from collections.abc import Sequence
from functools import cache

import orjson
from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, Text, TextClause, func, text
from sqlalchemy import Sequence as IdSequence
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.concurrency.background import wake
from shared.contracts.frames import Event
from shared.postgres.engine import raw_statement

# A transaction has its transaction id before it draws an id of a row: the relay relies on it.
NEXT_ID = "nextval(CASE WHEN pg_current_xact_id() IS NOT NULL THEN '{schema}.outbox_batch_id_seq'::regclass END)"


def outbox_tables(metadata: MetaData) -> tuple[Table, Table]:
    """The tables `outbox_batch` and `outbox_cursor`, for a service's `tables.py`."""
    IdSequence("outbox_batch_id_seq", metadata=metadata)
    batch = Table(
        "outbox_batch",
        metadata,
        Column(
            "id", BigInteger, primary_key=True, autoincrement=False,
            server_default=text(NEXT_ID.format(schema=metadata.schema)),
        ),
        Column("written_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
        Column("events", JSONB, nullable=False),
    )  # fmt: skip
    cursor = Table(
        "outbox_cursor",
        metadata,
        Column("name", Text, primary_key=True),
        Column("id", BigInteger, nullable=False),
    )
    return batch, cursor


@cache
def outbox_statement(verb: str, schema: str) -> TextClause:
    """The statement of `sql/<verb>.sql` for the outbox of this schema."""
    return text(raw_statement(__package__, verb).format(schema=schema))


@cache
def outboxes_statement(verb: str, *schemas: str) -> TextClause:
    """The statement of `sql/<verb>.sql` for all outboxes of these schemas, with the rows of `sql/<verb>_of_one.sql`."""
    of_one = raw_statement(__package__, f"{verb}_of_one")
    of_each = "\nUNION ALL ".join(of_one.format(schema=schema) for schema in schemas)
    return text(raw_statement(__package__, verb).format(of_each=of_each))


async def emit_events(connection: AsyncConnection, source: str, events: Sequence[Event]) -> None:
    """Writes all events of the caller's transaction as one row of its service's outbox, and wakes the service's loops:
    its relay waits for a transaction that has drawn an id, so this may be shortly before the commit.
    """
    if events:
        await emit_bodies(connection, source, [event.model_dump(mode="json") for event in events])


async def emit_bodies(connection: AsyncConnection, source: str, bodies: Sequence[dict[str, object]]) -> None:
    """The same for events that are JSON objects already."""
    await connection.execute(outbox_statement("insert_batch", source), {"events": orjson.dumps(bodies).decode()})
    wake(source)
