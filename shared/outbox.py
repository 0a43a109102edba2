"""Tell: facts leave with the transaction that made them true, and reach the event log at least once, in order.

A service writes events into its `outbox` table inside the fact's own transaction; the relay, one at a time by lease,
takes `published_at IS NULL ORDER BY id` (never "id greater than last": a lower id may commit later), appends to the
log and marks them. Consumers are idempotent.
"""

import asyncio
import uuid
import zlib
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    MetaData,
    Table,
    Text,
    any_,
    cast,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.contracts.events import Event

LOG_STREAMS = 16
LOG_LENGTH_MAX = 100_000
LEASE_S = 5
BATCH_MAX = 500
IDLE_S = 0.2


def log_stream(event_id: str) -> str:
    """The log stream of an event: `log:{0}` … `log:{15}` by hash, so that the log spreads over a cluster."""
    return f"log:{{{zlib.crc32(event_id.encode()) % LOG_STREAMS}}}"


def outbox_tables(metadata: MetaData) -> tuple[Table, Table]:
    """The `outbox` and the lease of its relay, for a service's `tables.py`."""
    outbox = Table(
        "outbox",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=True),
        Column("event_id", Text, nullable=False),
        Column("body", JSONB, nullable=False),
        Column("published_at", DateTime(timezone=True)),
        Index("ix_outbox_unpublished", "id", postgresql_where=text("published_at IS NULL")),
    )
    lease = Table(
        "outbox_lease",
        metadata,
        Column("name", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        Column("until", DateTime(timezone=True), nullable=False),
    )
    return outbox, lease


async def tell(connection: AsyncConnection, outbox: Table, events: Sequence[Event]) -> None:
    """Writes events into the outbox, in the caller's transaction."""
    if events:
        rows = [{"event_id": event.event_id, "body": event.model_dump(mode="json")} for event in events]
        await connection.execute(outbox.insert(), rows)


class Relay:
    """Moves one service's outbox to the log. Any number may run; the lease lets one work."""

    def __init__(self, engine: AsyncEngine, redis: Redis, outbox: Table, lease: Table) -> None:
        self._engine, self._redis, self._outbox, self._lease = engine, redis, outbox, lease
        self._owner = uuid.uuid4().hex

    async def run(self) -> None:
        """One turn: everything there is, then a short rest. A loop calls it for ever."""
        while await self.turn() == BATCH_MAX:
            pass
        await asyncio.sleep(IDLE_S)

    async def turn(self) -> int:
        """Relays one batch; how many it was. Publishing happens between two transactions, never inside one."""
        batch = await self._due()
        if batch:
            pipe = self._redis.pipeline(transaction=False)
            for _, event_id, body in batch:
                pipe.xadd(log_stream(event_id), {"event": body}, maxlen=LOG_LENGTH_MAX, approximate=True)
            await pipe.execute()
            await self._mark([row_id for row_id, _, _ in batch])
        return len(batch)

    async def _due(self) -> list[tuple[int, str, str]]:
        table, lease = self._outbox, self._lease
        until = text(f"clock_timestamp() + interval '{LEASE_S} seconds'")
        take = insert(lease).values(name="relay", owner=self._owner, until=until)
        take = take.on_conflict_do_update(
            index_elements=[lease.c.name],
            set_={"owner": take.excluded.owner, "until": take.excluded.until},
            where=(lease.c.owner == self._owner) | (lease.c.until < func.clock_timestamp()),
        )
        anything = select(table.c.id).where(table.c.published_at.is_(None)).limit(1)
        async with self._engine.begin() as connection:
            if (await connection.execute(anything)).first() is None or not (await connection.execute(take)).rowcount:
                return []
            rows = await connection.execute(
                select(table.c.id, table.c.event_id, cast(table.c.body, Text).label("body"))
                .where(table.c.published_at.is_(None))
                .order_by(table.c.id)
                .limit(BATCH_MAX)
            )
            return [(row.id, row.event_id, row.body) for row in rows]

    async def _mark(self, ids: list[int]) -> None:
        async with self._engine.begin() as connection:
            some = self._outbox.c.id == any_(cast(ids, ARRAY(BigInteger)))
            await connection.execute(update(self._outbox).where(some).values(published_at=func.clock_timestamp()))

    async def forget(self) -> int:
        """Deletes rows published more than a day ago; how many."""
        table = self._outbox
        async with self._engine.begin() as connection:
            old = table.c.published_at < func.now() - text("interval '1 day'")
            return (await connection.execute(table.delete().where(old))).rowcount


async def read_log(
    redis: Redis, offsets: Mapping[str, str], *, count: int = 200, block_ms: int = 1000
) -> list[tuple[str, str, Event]]:
    """What came after `offsets` (stream → last id): `(stream, id, event)`, each stream in its order."""
    entries = await read_entries(redis, offsets, count=count, block_ms=block_ms)
    return [(stream, entry_id, Event.model_validate_json(raw)) for stream, entry_id, raw in entries]


async def read_entries(
    redis: Redis, offsets: Mapping[str, str], *, count: int = 200, block_ms: int = 1000
) -> list[tuple[str, str, bytes]]:
    """As `read_log`, with events as they were written: for a reader who wants few of them."""
    answer = await redis.xread(dict(offsets), count=count, block=block_ms)
    streams = answer.items() if isinstance(answer, dict) else answer or []
    return [
        (stream.decode(), entry_id.decode(), fields[b"event"])
        for stream, batch in streams
        for entry_id, fields in batch
    ]
