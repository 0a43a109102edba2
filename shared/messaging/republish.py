"""Publishes again what the event log in Redis may have lost: each stream stores the Redis process it was published to.

A process that was promoted, restarted or emptied may lack the last events that relays have marked as published. The
last hour of them is published again; consumers are idempotent.
"""

import asyncio
from collections.abc import Collection

from sqlalchemy import ARRAY, Table, Text, any_, cast, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.messaging.log import EventLog
from shared.messaging.outbox import LEASE_S
from shared.messaging.redis_streams import STREAMS, RedisStreams, log_stream
from shared.redis.client import REDIS_AWAY, identities
from shared.runtime.logging import get_logger

log = get_logger("onsale.relay")
REPUBLISH_S = 3600
CHECK_S, CHECK_IDLE_S = 1.0, 15.0
NAMES = [f"log:{{{n}}}" for n in range(STREAMS)]


class Republisher:
    """Watches the event log for one service's outbox. A log outside Redis is durable and is not watched."""

    def __init__(self, db: AsyncEngine, log: EventLog, outbox: Table) -> None:
        self._db, self._outbox = db, outbox
        self._redis = log.redis if isinstance(log, RedisStreams) else None
        self._source = outbox.schema or outbox.name
        self._noticed_s: dict[tuple[str, str], float] = {}

    async def check(self) -> int:
        """Compares each stream's Redis process with the stored one; returns how many events will be published again.

        A batch in flight when the process changed is marked as published up to a lease later. So a second pass follows
        after the lease, and only then the new process is stored.
        """
        redis = self._redis
        if redis is None:
            return 0
        try:
            now = await identities(redis, NAMES)
            pipe = redis.pipeline(transaction=False)
            for stream in now:
                pipe.get(self._mark_key(stream))
            marks = dict(zip(now, await pipe.execute(), strict=True))
        except REDIS_AWAY:
            return 0
        changed = {stream: process for stream, process in now.items() if marks[stream] != process.encode()}
        clock_s = asyncio.get_running_loop().time()
        first = {stream for stream, process in changed.items() if (stream, process) not in self._noticed_s}
        last = {s for s, to in changed.items() if s not in first and clock_s - self._noticed_s[s, to] > LEASE_S}
        count = await self._unmark(first, REPUBLISH_S) + await self._unmark(last, 2 * LEASE_S)
        self._noticed_s |= {(stream, changed[stream]): clock_s for stream in first}
        for stream in last:
            await redis.set(self._mark_key(stream), changed[stream])
            self._noticed_s = {key: at_s for key, at_s in self._noticed_s.items() if key[0] != stream}
        if count:
            log.warning("relay.republishes", source=self._source, events=count)
        return count

    def _mark_key(self, stream: str) -> str:
        return f"{stream}:published_to:{self._source}"

    async def _unmark(self, streams: Collection[str], since_s: int) -> int:
        """Marks the events published to these streams in the last `since_s` seconds as unpublished; how many."""
        if not streams:
            return 0
        table = self._outbox
        lately = table.c.published_at > func.clock_timestamp() - text(f"interval '{since_s} seconds'")
        async with self._db.begin() as connection:
            events = await connection.scalars(select(table.c.event_id).where(lately).distinct())
            theirs = [event_id for event_id in events if log_stream(event_id) in streams]
            again = update(table).where(lately, table.c.event_id == any_(cast(theirs, ARRAY(Text))))
            return (await connection.execute(again.values(published_at=None))).rowcount if theirs else 0
