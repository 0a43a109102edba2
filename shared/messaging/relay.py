"""The relay publishes the outboxes of a process's services to the event log, in order and at least once.

One loop a process looks what waits in the outboxes of all its services, with one statement for those in the same
database. What it finds is published by each service for itself, over its own pool: a service whose events the log
refuses holds up no other.

A lower id may commit after a higher one. So the relay reads the last id that was drawn (`last`) of each outbox, then
takes a transaction id, and waits until every transaction before that one has ended. As a transaction has its
transaction id before it draws an id, all rows up to `last` are then committed or will never be. They are published by
their id, and the cursor moves to `last`. Two events of one order, reservation or place are drawn one after the other,
under the lock of its row, so they are published in that order. (Sorted by their transactions they would not be: one
that began earlier may change the same row later.)

Any number of processes may run a relay. The one with the lock of an outbox publishes it; it is a lock of its
transaction, so it ends with the process. A batch is published, then the cursor moves: a crash in between repeats the
batch.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.concurrency.background import Loops, Quiet
from shared.concurrency.tasks import to_the_end
from shared.messaging.log import EventLog, PendingEvent
from shared.messaging.outbox import outbox_statement, outboxes_statement
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


class Outbox:
    """The outbox of the service whose tables are in `schema` of this database (its URL). `run` is for a loop that keeps
    it running.
    """

    def __init__(self, db: AsyncEngine, log: EventLog, schema: str, *, database: str = "") -> None:
        self.schema, self._database = schema, database
        self._db, self._log = db, log
        self.single_reads = db.execution_options(isolation_level="AUTOCOMMIT")
        self._republisher = Republisher(db, log.redis, schema) if isinstance(log, RedisStreams) else None
        self.behind_s = LOG_BEHIND_S.labels(schema)
        self._check_at_s = self._forget_at_s = time.monotonic()
        self._deletable = 0
        self._due, self._cursor, self._last = asyncio.Event(), 0, 0

    async def run(self) -> None:
        """Publishes what the relay of this process finds, until cancelled."""
        relay = _relays.setdefault(self._database, Relay())
        try:
            await relay.add(self)
            while True:
                await self._due.wait()
                self._due.clear()
                await self._tidy()
                await self.publish()
        finally:
            await to_the_end(relay.remove(self))

    def mark_decided(self, cursor: int, last: int) -> None:
        """All events up to the id `last` are decided, and those after `cursor` wait."""
        self._cursor, self._last = cursor, last
        self._check_at_s = min(self._check_at_s, time.monotonic() + CHECK_S)
        self._due.set()

    def mark_time(self) -> None:
        """Some time has passed."""
        if time.monotonic() >= min(self._check_at_s, self._forget_at_s):
            self._due.set()

    async def publish(self) -> None:
        """Publishes what is decided since the last call."""
        cursor, last = self._cursor, self._last
        self._cursor = last
        if cursor > last:
            await set_back(self._db, self.schema, REPUBLISH_S, reason="the cursor is ahead of all events")
        elif cursor < last:
            while await self._publish_next(last):
                pass

    async def _tidy(self) -> None:
        """Now and then compares Redis with the stored one, and deletes old events."""
        now_s = time.monotonic()
        if now_s >= self._check_at_s:
            if self._republisher:
                await self._republisher.check()
            is_away = self._republisher is not None and self._republisher.is_away
            self._check_at_s = now_s + (CHECK_S if is_away else CHECK_QUIET_S)
        if now_s >= self._forget_at_s:
            self._forget_at_s = now_s + FORGET_S
            await self.delete_old()

    async def _publish_next(self, last: int) -> bool:
        """Publishes the next batches up to the decided id `last`; whether there may be more. The transaction holds the
        lock and nothing else while it publishes.
        """
        async with self._db.begin() as connection:
            lock = outbox_statement("try_lock", self.schema)
            if not (await connection.execute(lock, {"lock_ms": str(round(LOCK_S * 1000))})).one().is_ours:
                return False
            limits = {"last": last, "rows_max": ROWS_MAX, "bytes_max": BYTES_MAX}
            rows = (await connection.execute(outbox_statement("read_batches", self.schema), limits)).all()
            cursor, reached = rows[0].cursor, rows[-1].id or last
            if cursor >= last:
                return False
            if events := _events(rows):
                await self._log.publish(self.schema, events)
            await self._move(connection, cursor, reached)
        if reached < last:
            return True
        self.behind_s.set(0)
        return False

    async def _move(self, connection: AsyncConnection, read: int, to: int) -> None:
        await connection.execute(outbox_statement("move_cursor", self.schema), {"read": read, "to": to})

    async def delete_old(self) -> int:
        """Deletes batches that were written more than a day ago and published before the last call, so that the last
        hour can always be published again; returns how many.
        """
        count, limits = 0, {"up_to": self._deletable, "rows_max": DELETED_AT_ONCE}
        while True:
            async with self._db.begin() as connection:
                deleted = (await connection.execute(outbox_statement("delete_old", self.schema), limits)).rowcount
            count += deleted
            if deleted < DELETED_AT_ONCE:
                break
        async with self.single_reads.connect() as connection:
            self._deletable = (await connection.execute(outboxes_statement("progress", self.schema))).one().cursor
        return count


class Relay:
    """Looks after the outboxes of this process that are in one database, as long as there are any."""

    def __init__(self, *outboxes: Outbox) -> None:
        self._outboxes, self._loops = outboxes, Loops()

    async def add(self, outbox: Outbox) -> None:
        """Begins to look after this outbox."""
        await self._serve(*self._outboxes, outbox)

    async def remove(self, outbox: Outbox) -> None:
        """Uses nothing of this outbox any more."""
        await self._serve(*(other for other in self._outboxes if other is not outbox))

    async def _serve(self, *outboxes: Outbox) -> None:
        before, self._outboxes = self._loops, outboxes
        self._loops = Loops(*(outbox.schema for outbox in outboxes))
        if outboxes:
            self._loops.every(RELAY_S, self.run, name="relay")
        await before.stop()

    async def run(self) -> Quiet | None:
        """Tells each outbox what of it is decided; `Quiet` if nothing waits, whoever publishes it. It looks over the
        pool of one service, and after a failure over that of another.
        """
        outboxes = self._outboxes
        try:
            waiting, is_decided = await self._find_waiting(
                outboxes[0].single_reads, {outbox.schema for outbox in outboxes}
            )
        except Exception:
            self._outboxes = (*self._outboxes[1:], *self._outboxes[:1])
            raise
        for outbox in outboxes:
            row = waiting.get(outbox.schema)
            if row is None:
                outbox.behind_s.set(0)
            elif is_decided:
                outbox.mark_decided(row.cursor, row.last)
            outbox.mark_time()
        return None if waiting else Quiet(QUIET_S)

    async def _find_waiting(self, single_reads: AsyncEngine, schemas: set[str]) -> tuple[dict[str, Row[Any]], bool]:
        """Of each outbox with events that wait its cursor and its last id; whether these are decided."""
        async with single_reads.connect() as connection:
            found = (await connection.execute(outboxes_statement("progress", *sorted(schemas)))).all()
            waiting = {row.source: row for row in found if row.cursor != row.last}
            return waiting, bool(waiting) and await self._is_decided(connection, sorted(waiting), found[0].xid)

    async def _is_decided(self, connection: AsyncConnection, schemas: Sequence[str], xid: str) -> bool:
        """Whether all transactions before this one have ended, or do so at once."""
        for pause_s in (*DECIDED_AFTER_S, 0.0):
            rows = (await connection.execute(outboxes_statement("is_decided", *schemas), {"xid": xid})).all()
            for row in rows:
                LOG_BEHIND_S.labels(row.source).set(row.age_s)
            if rows[0].is_decided:
                return True
            await asyncio.sleep(pause_s)
        return False


_relays: dict[str, Relay] = {}  # of this process, by the database of their outboxes


def _events(rows: Sequence[Row[Any]]) -> list[PendingEvent]:
    return [PendingEvent(row.key, row.event_id, row.type, row.body) for row in rows if row.key is not None]
