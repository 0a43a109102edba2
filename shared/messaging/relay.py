"""The relay publishes a service's outbox to the event log, in order and at least once. One loop a service and process.

A lower id may commit after a higher one. So the relay reads the last id that was drawn (`last`), then takes a
transaction id, and waits until every transaction before that one has ended. As a transaction has its transaction id
before it draws an id, all rows up to `last` are then committed or will never be. They are published by their id, and
the cursor moves to `last`. Two events of one order, reservation or place are drawn one after the other, under the lock
of its row, so they are published in that order. (Sorted by their transactions they would not be: one that began earlier
may change the same row later.)

Any number of processes may run a relay. The one with the lock publishes; it is a lock of its transaction, so it ends
with the process. A batch is published, then the cursor moves: a crash in between repeats the batch.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.concurrency.background import Quiet
from shared.messaging.log import EventLog, PendingEvent
from shared.messaging.outbox import outbox_statement
from shared.messaging.redis_streams import RedisStreams
from shared.messaging.republish import REPUBLISH_S, Republisher, set_back
from shared.runtime.metrics import LOG_BEHIND_S

RELAY_S, QUIET_S = 0.2, 4.0  # the longest pause is how late events of a process that died are published
CHECK_S, CHECK_QUIET_S = 1.0, 15.0  # between two comparisons, after events or an outage, and otherwise
FORGET_S = 3600.0
LOCK_S = 5  # after which a silent process loses the lock; longer than an attempt to publish
DECIDED_AFTER_S = (0.005, 0.01, 0.02, 0.04, 0.1)  # pauses between looks whether the transactions before have ended
ROWS_MAX, BYTES_MAX = 500, 65_536  # of batches read at once; the bytes as stored, which is often compressed
DELETED_AT_ONCE = 10_000


class Relay:
    """The relay of the service whose tables are in `schema`. `run` is for a loop that calls it every `RELAY_S`."""

    def __init__(self, db: AsyncEngine, log: EventLog, schema: str) -> None:
        self._db, self._log, self._schema = db, log, schema
        self._single_reads = db.execution_options(isolation_level="AUTOCOMMIT")
        self._republisher = Republisher(db, log.redis, schema) if isinstance(log, RedisStreams) else None
        self._behind_s = LOG_BEHIND_S.labels(schema)
        self._check_at_s = self._forget_at_s = time.monotonic()
        self._deletable = 0

    async def run(self) -> Quiet | None:
        """Publishes what waits. Now and then it compares Redis with the stored one, and deletes old events."""
        now_s = time.monotonic()
        if self._republisher and now_s >= self._check_at_s:
            await self._republisher.check()
            self._check_at_s = now_s + (CHECK_S if self._republisher.is_away else CHECK_QUIET_S)
        if found := await self.relay():
            self._check_at_s = min(self._check_at_s, now_s + CHECK_S)
        if now_s >= self._forget_at_s:
            self._forget_at_s = now_s + FORGET_S
            await self.delete_old()
        return None if found else Quiet(QUIET_S)

    async def relay(self) -> bool:
        """Publishes all events that are decided; whether there were any that wait, whoever publishes them."""
        async with self._single_reads.connect() as connection:
            progress = (await connection.execute(outbox_statement("progress", self._schema))).one()
        if progress.xid is None:
            self._behind_s.set(0)
            return False
        if progress.cursor > progress.last:
            await set_back(self._db, self._schema, REPUBLISH_S, reason="the cursor is ahead of all events")
        elif await self._is_decided(progress.xid):
            while await self._publish_next(progress.last):
                pass
        return True

    async def _is_decided(self, xid: str) -> bool:
        """Whether all transactions before this one have ended, or do so at once."""
        async with self._single_reads.connect() as connection:
            for pause_s in (*DECIDED_AFTER_S, 0.0):
                row = (await connection.execute(outbox_statement("is_decided", self._schema), {"xid": xid})).one()
                self._behind_s.set(row.age_s)
                if row.is_decided:
                    return True
                await asyncio.sleep(pause_s)
        return False

    async def _publish_next(self, last: int) -> bool:
        """Publishes the next batches up to the decided id `last`; whether there may be more. The transaction holds the
        lock and nothing else while it publishes.
        """
        async with self._db.begin() as connection:
            lock = outbox_statement("try_lock", self._schema)
            if not (await connection.execute(lock, {"lock_ms": str(round(LOCK_S * 1000))})).one().is_ours:
                return False
            limits = {"last": last, "rows_max": ROWS_MAX, "bytes_max": BYTES_MAX}
            rows = (await connection.execute(outbox_statement("read_batches", self._schema), limits)).all()
            cursor, reached = rows[0].cursor, rows[-1].id or last
            if cursor >= last:
                return False
            if events := _events(rows):
                await self._log.publish(self._schema, events)
            await self._move(connection, cursor, reached)
        if reached < last:
            return True
        self._behind_s.set(0)
        return False

    async def _move(self, connection: AsyncConnection, read: int, to: int) -> None:
        await connection.execute(outbox_statement("move_cursor", self._schema), {"read": read, "to": to})

    async def delete_old(self) -> int:
        """Deletes batches that were written more than a day ago and published before the last call, so that the last
        hour can always be published again; returns how many.
        """
        count, limits = 0, {"up_to": self._deletable, "rows_max": DELETED_AT_ONCE}
        while True:
            async with self._db.begin() as connection:
                deleted = (await connection.execute(outbox_statement("delete_old", self._schema), limits)).rowcount
            count += deleted
            if deleted < DELETED_AT_ONCE:
                break
        async with self._single_reads.connect() as connection:
            self._deletable = (await connection.execute(outbox_statement("progress", self._schema))).one().cursor
        return count


def _events(rows: Sequence[Row[Any]]) -> list[PendingEvent]:
    return [PendingEvent(row.key, row.event_id, row.type, row.body) for row in rows if row.key is not None]
