"""What the log has lost is told again: each stream remembers which engine process it was told to.

An engine that took another's place, was restarted, or lost everything may lack the last of what relays have marked as
published. Consumers are idempotent, so an hour of it is told once more.
"""

import asyncio
import logging
from collections.abc import Collection

from sqlalchemy import ARRAY, Table, Text, any_, cast, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.messaging.log import EventLog
from shared.messaging.outbox import LEASE_S
from shared.messaging.redis_streams import STREAMS, RedisStreams, log_stream
from shared.redis.client import REDIS_AWAY, identities
from shared.runtime.logging import data

log = logging.getLogger("onsale.relay")
AGAIN_S = 3600
NAMES = [f"log:{{{n}}}" for n in range(STREAMS)]


class Republisher:
    """Watches the log for one service's outbox. A log that is not in Redis keeps what it was told by itself."""

    def __init__(self, db: AsyncEngine, log: EventLog, outbox: Table) -> None:
        self._db, self._outbox = db, outbox
        self._redis = log.redis if isinstance(log, RedisStreams) else None
        self._source = outbox.schema or outbox.name
        self._seen_s: dict[tuple[str, str], float] = {}

    async def look(self) -> int:
        """One turn; how many events are to be told again. A batch that was on its way when the engine changed is
        marked as published up to a lease later, so those are told again then, and only after that it is remembered.
        """
        redis = self._redis
        if redis is None:
            return 0
        try:
            now = await identities(redis, NAMES)
            pipe = redis.pipeline(transaction=False)
            for stream in now:
                pipe.get(self._mark(stream))
            marks = dict(zip(now, await pipe.execute(), strict=True))
        except REDIS_AWAY:
            return 0
        changed = {stream: who for stream, who in now.items() if marks[stream] != who.encode()}
        clock_s = asyncio.get_running_loop().time()
        first = {stream for stream, who in changed.items() if (stream, who) not in self._seen_s}
        last = {s for s, who in changed.items() if s not in first and clock_s - self._seen_s[s, who] > LEASE_S}
        told = await self._unmark(first, AGAIN_S) + await self._unmark(last, 2 * LEASE_S)
        self._seen_s |= {(stream, changed[stream]): clock_s for stream in first}
        for stream in last:
            await redis.set(self._mark(stream), changed[stream])
            self._seen_s = {at: seen for at, seen in self._seen_s.items() if at[0] != stream}
        if told:
            log.warning("relay.tells_again", extra=data(source=self._source, events=told))
        return told

    def _mark(self, stream: str) -> str:
        return f"{stream}:told:{self._source}"

    async def _unmark(self, streams: Collection[str], since_s: int) -> int:
        """What was published to these streams lately is to be published."""
        if not streams:
            return 0
        table = self._outbox
        lately = table.c.published_at > func.clock_timestamp() - text(f"interval '{since_s} seconds'")
        async with self._db.begin() as connection:
            events = await connection.scalars(select(table.c.event_id).where(lately).distinct())
            theirs = [event_id for event_id in events if log_stream(event_id) in streams]
            again = update(table).where(lately, table.c.event_id == any_(cast(theirs, ARRAY(Text))))
            return (await connection.execute(again.values(published_at=None))).rowcount if theirs else 0
