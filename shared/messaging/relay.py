"""Reads the outboxes of a process's services, in order and at least once: each service publishes its own to the event
log, and features act on them.

One loop a process looks what waits in the outboxes of all its services, with one statement for those in the same
database. What it finds is taken by each reader for itself, over its service's pool: a service whose events the log
refuses holds up no other, and a feature that fails stops only itself.

A lower id may commit after a higher one. So the relay reads the last id that was drawn (`last`) of each outbox, then
takes a transaction id, and waits until every transaction before that one has ended. As a transaction has its
transaction id before it draws an id, all rows up to `last` are then committed or will never be. They are published by
their id, and the cursor moves to `last`. Two events of one order, reservation or place are drawn one after the other,
under the lock of its row, so they are published in that order. (Sorted by their transactions they would not be: one
that began earlier may change the same row later.)

Any number of processes may run a relay. The one with the lock of a cursor reads on; it is a lock of its transaction, so
it ends with the process. A batch is published, then the cursor moves: a crash in between repeats the batch.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.concurrency.background import Loops, Quiet, to_the_end
from shared.messaging.log import EventLog, PendingEvent, RedisStreams
from shared.messaging.outbox import outbox_statement, outboxes_statement
from shared.messaging.republish import REPUBLISH_S, Republisher, set_back
from shared.runtime.metrics import EVENTS_UNREAD_S, LOG_BEHIND_S

RELAY_S, QUIET_S = 0.2, 4.0  # the longest pause is how late events of a process that died are published
CHECK_S, CHECK_QUIET_S = 1.0, 15.0  # between two comparisons, after events or an outage, and otherwise
FORGET_S = 3600.0
LOCK_S = 5  # after which a silent process loses the lock; longer than an attempt to publish
TAKE_S = 5.0  # a reader that needs longer for a batch has failed
RELAY = "relay"  # the cursor of what is published
DECIDED_AFTER_S = (0.005, 0.01, 0.02, 0.04, 0.1)  # pauses between looks whether the transactions before have ended
ROWS_MAX, BYTES_MAX = 500, 65_536  # of batches read at once; the bytes as stored, which is often compressed
DELETED_AT_ONCE = 10_000


Take = Callable[[AsyncConnection, Sequence[PendingEvent]], Awaitable[object]]


class EventReader:
    """Reads the events of the service whose tables are in `schema` of this database (its URL), behind a cursor; a new
    one begins after what is published. `run` is for a loop that keeps it running.

    `take` gets the next events, in their order, in the transaction that then moves the cursor, and from one process at
    a time: what it writes there is written once. It asks others first, if it has to, and writes then: from the first
    write on all relays wait for its transaction. If it raises, or takes longer than `TAKE_S`, the same events come
    again after a growing pause. `then` is called after the commit, which waits for no disk: what a crash of the server
    loses comes again, too.
    """

    def __init__(
        self, db: AsyncEngine, schema: str, name: str, take: Take, *, database: str = "",
        then: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.schema, self._name, self._database = schema, name, database
        self._db, self._take, self._then = db, take, then
        self.single_reads = db.execution_options(isolation_level="AUTOCOMMIT")
        self.behind_s = LOG_BEHIND_S.labels(schema) if name == RELAY else EVENTS_UNREAD_S.labels(schema, name)
        self._due, self._last = asyncio.Event(), 0
        self._read: int | None = None  # up to where this process knows that the cursor is

    async def run(self) -> None:
        """Reads what the relay of this process finds, until cancelled."""
        await self.begin()
        relay = _relays.setdefault(self._database, Relay())
        try:
            await relay.add(self)
            while True:
                await self._due.wait()
                self._due.clear()
                await self.work()
        finally:
            await to_the_end(relay.remove(self))

    async def begin(self) -> None:
        """Makes a new cursor."""
        async with self._db.begin() as connection:
            await connection.execute(outbox_statement("begin_cursor", self.schema), {"name": self._name})

    def mark_decided(self, cursor: int, last: int) -> None:
        """All events up to the id `last` are decided, and those after `cursor` are not published yet."""
        if self._read is None or last > self._read:
            self._last = last
            self._due.set()

    def mark_time(self) -> None:
        """Some time has passed."""

    async def work(self) -> None:
        """Reads what is decided."""
        while await self._read_next(self._last):
            pass

    async def _read_next(self, last: int) -> bool:
        """Takes the next batches up to the decided id `last`; whether there may be more. The transaction holds the lock
        and nothing else until something is written.
        """
        lock = self.schema if self._name == RELAY else f"{self.schema} {self._name}"
        async with self._db.begin() as connection:
            bound = {"lock_ms": str(round(LOCK_S * 1000))}
            if not (await connection.execute(outbox_statement("try_lock", lock), bound)).one().is_ours:
                return False
            limits = {"name": self._name, "last": last, "rows_max": ROWS_MAX, "bytes_max": BYTES_MAX}
            rows = (await connection.execute(outbox_statement("read_batches", self.schema), limits)).all()
            cursor, reached = rows[0].cursor, rows[-1].id or last
            if cursor < last:
                self.behind_s.set(rows[0].age_s or 0)
                if events := [PendingEvent(row.key, row.event_id, row.type, row.body) for row in rows if row.key]:
                    async with asyncio.timeout(TAKE_S):
                        await self._take(connection, events)
                moved = {"name": self._name, "read": cursor, "to": reached}
                await connection.execute(outbox_statement("move_cursor", self.schema), moved)
        self._read = max(cursor, reached)
        if cursor < last:
            self._then()
        if self._read < last:
            return True
        self.behind_s.set(0)
        return False


class Outbox(EventReader):
    """The outbox of a service: reads it to publish it in `log`."""

    def __init__(self, db: AsyncEngine, log: EventLog, schema: str, *, database: str = "") -> None:
        super().__init__(db, schema, RELAY, lambda _, events: log.publish(schema, events), database=database)
        self._republisher = Republisher(db, log.redis, schema) if isinstance(log, RedisStreams) else None
        self._check_at_s = self._forget_at_s = time.monotonic()
        self._cursor = self._deletable = 0

    async def begin(self) -> None:
        """The first event that is published makes it."""

    def mark_decided(self, cursor: int, last: int) -> None:
        """All events up to the id `last` are decided, and those after `cursor` wait."""
        if cursor == last:
            self.behind_s.set(0)
            return
        self._cursor, self._last = cursor, last
        self._check_at_s = min(self._check_at_s, time.monotonic() + CHECK_S)
        self._due.set()

    def mark_time(self) -> None:
        """Some time has passed: Redis is to be looked at, or old events deleted."""
        if time.monotonic() >= min(self._check_at_s, self._forget_at_s):
            self._due.set()

    async def work(self) -> None:
        """Publishes what waits; now and then compares Redis with the stored one, and deletes old events."""
        now_s = time.monotonic()
        if now_s >= self._check_at_s:
            if self._republisher:
                await self._republisher.check()
            is_away = self._republisher is not None and self._republisher.is_away
            self._check_at_s = now_s + (CHECK_S if is_away else CHECK_QUIET_S)
        if now_s >= self._forget_at_s:
            self._forget_at_s = now_s + FORGET_S
            await self.delete_old()
        await self.publish()

    async def publish(self) -> None:
        """Publishes what is decided since the last call."""
        cursor, last = self._cursor, self._last
        self._cursor = last
        if cursor > last:
            await set_back(self._db, self.schema, REPUBLISH_S, reason="the cursor is ahead of all events")
        elif cursor < last:
            while await self._read_next(last):
                pass

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
    """Looks for the readers of this process whose outboxes are in one database, as long as there are any."""

    def __init__(self, *readers: EventReader) -> None:
        self._readers, self._loops = readers, Loops()

    async def add(self, reader: EventReader) -> None:
        """Begins to look for this reader."""
        await self._serve(*self._readers, reader)

    async def remove(self, reader: EventReader) -> None:
        """Uses nothing of this reader any more."""
        await self._serve(*(other for other in self._readers if other is not reader))

    async def _serve(self, *readers: EventReader) -> None:
        before, self._readers = self._loops, readers
        self._loops = Loops(*{reader.schema for reader in readers})
        if readers:
            self._loops.every(RELAY_S, self.run, name="relay")
        await before.stop()

    async def run(self) -> Quiet | None:
        """Tells each reader what of its outbox is decided; `Quiet` if nothing waits, whoever publishes it. It looks
        over the pool of one service, and after a failure over that of another.
        """
        readers = self._readers
        try:
            found, is_decided = await self._find_progress(
                readers[0].single_reads, {reader.schema for reader in readers}
            )
        except Exception:
            self._readers = (*self._readers[1:], *self._readers[:1])
            raise
        for reader in readers:
            row = found[reader.schema]
            if is_decided or row.cursor == row.last:
                reader.mark_decided(row.cursor, row.last)
            reader.mark_time()
        return None if any(row.cursor != row.last for row in found.values()) else Quiet(QUIET_S)

    async def _find_progress(self, single_reads: AsyncEngine, schemas: set[str]) -> tuple[dict[str, Row[Any]], bool]:
        """Of each outbox its cursor and its last id; whether those that wait are decided."""
        async with single_reads.connect() as connection:
            found = (await connection.execute(outboxes_statement("progress", *sorted(schemas)))).all()
            waiting = sorted(row.source for row in found if row.cursor != row.last)
            is_decided = bool(waiting) and await self._is_decided(connection, waiting, found[0].xid)
            return {row.source: row for row in found}, is_decided

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
