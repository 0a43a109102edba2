"""The transactional outbox: events commit with their change and reach the event log at least once, in order.

A service writes events into its `outbox` table inside the transaction of the change. The relay, one at a time by lease,
reads `published_at IS NULL ORDER BY id` (never "id greater than the last": a lower id may commit later), publishes the
rows to the event log and marks them. Consumers are idempotent.
"""

import uuid
from collections.abc import Sequence

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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, Insert, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.concurrency.background import ACTIVITY
from shared.contracts.events import Event
from shared.messaging.log import EventLog, PendingEvent
from shared.runtime.clock import now_ms
from shared.runtime.metrics import LOG_BEHIND_S

LEASE_S = 5
BATCH_MAX = 500
RELAY_S, RELAY_IDLE_S = 0.2, 4.0


def outbox_tables(metadata: MetaData) -> tuple[Table, Table]:
    """The tables `outbox` and `outbox_lease`, for a service's `tables.py`."""
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


async def emit_events(connection: AsyncConnection, outbox: Table, events: Sequence[Event]) -> None:
    """Writes events into the outbox, in the caller's transaction, and wakes the relay of this process."""
    if events:
        ACTIVITY.stir()
        rows = [{"event_id": event.event_id, "body": event.model_dump(mode="json")} for event in events]
        await connection.execute(outbox.insert(), rows)


class Relay:
    """Publishes one service's outbox to the event log. Any number may run; the one with the lease works."""

    def __init__(self, db: AsyncEngine, log: EventLog, outbox: Table, lease: Table) -> None:
        self._db, self._log, self._outbox, self._lease = db, log, outbox, lease
        self._single_reads = db.execution_options(isolation_level="AUTOCOMMIT")  # the question of an idle relay
        self._owner, self._source = uuid.uuid4().hex, outbox.schema or outbox.name
        LOG_BEHIND_S.labels(self._source)
        body, pending = outbox.c.body, outbox.c.published_at.is_(None)
        self._any_pending = select(outbox.c.id).where(pending).limit(1)
        batch = select(outbox.c.id, body["id"].astext, outbox.c.event_id, body["type"].astext, cast(body, Text))
        self._batch = batch.where(pending).order_by(outbox.c.id).limit(BATCH_MAX)
        self._take_lease = self._lease_statement()

    async def run(self) -> None:
        """Publishes all pending events. A loop calls it every `RELAY_S`, and rarely while nothing happens."""
        while await self.relay_batch() == BATCH_MAX:
            pass

    async def relay_batch(self) -> int:
        """Publishes one batch and returns its size. It is published between two transactions, never inside one."""
        batch = await self._due()
        if batch:
            LOG_BEHIND_S.labels(self._source).set(_age_s(next(iter(batch.values()))))
            await self._log.publish(self._source, list(batch.values()))
            await self._mark(list(batch))
            LOG_BEHIND_S.labels(self._source).set(0)
        return len(batch)

    async def _due(self) -> dict[int, PendingEvent]:
        """The next batch by row id, in order; empty if another relay has the lease. Duplicates are recognised by the
        event's own id, because row ids repeat after a database is restored.
        """
        async with self._single_reads.connect() as connection:
            if (await connection.execute(self._any_pending)).first() is None:
                return {}
        ACTIVITY.stir()  # until another relay has published them, or this one has lost its lease after the last
        async with self._db.begin() as connection:
            if not (await connection.execute(self._take_lease)).rowcount:
                return {}
            return {row_id: PendingEvent(*event) for row_id, *event in await connection.execute(self._batch)}

    def _lease_statement(self) -> Insert:
        lease, until = self._lease, text(f"clock_timestamp() + interval '{LEASE_S} seconds'")
        take = insert(lease).values(name="relay", owner=self._owner, until=until)
        return take.on_conflict_do_update(
            index_elements=[lease.c.name],
            set_={"owner": take.excluded.owner, "until": take.excluded.until},
            where=(lease.c.owner == self._owner) | (lease.c.until < func.clock_timestamp()),
        )

    async def _mark(self, ids: list[int]) -> None:
        async with self._db.begin() as connection:
            rows = self._outbox.c.id == any_(cast(ids, ARRAY(BigInteger)))
            await connection.execute(update(self._outbox).where(rows).values(published_at=func.clock_timestamp()))

    async def delete_published(self) -> int:
        """Deletes rows published more than a day ago; returns how many."""
        table = self._outbox
        async with self._db.begin() as connection:
            old = table.c.published_at < func.now() - text("interval '1 day'")
            return (await connection.execute(table.delete().where(old))).rowcount


def _age_s(event: PendingEvent) -> float:
    """Seconds since the event occurred, by this machine's clock."""
    return max(0.0, (now_ms() - Event.model_validate_json(event.body).occurred_at_ms) / 1000)
