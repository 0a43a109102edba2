"""Publishes again what the event log may have lost, by moving the cursor back; consumers are idempotent.

Each stream in Redis stores the process it was published to. A process that was promoted, restarted or emptied may lack
the last entries, so the last hour of events is published again.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.messaging.log import STREAMS
from shared.messaging.outbox import outbox_statement
from shared.postgres.engine import raw_statement
from shared.redis.client import REDIS_AWAY, Redis, identities
from shared.runtime.logging import get_logger

log = get_logger("onsale.relay")
REPUBLISH_S = 3600
SWITCH_S = 10  # for which this process may go on to write to a Redis that others have left
NAMES = [f"log:{{{n}}}" for n in range(STREAMS)]


def set_back_statement(schema: str, seconds: int) -> str:
    """Moves the cursor back by the last `seconds` of events before it; it has no parameters."""
    return raw_statement(__package__, "set_back").format(schema=schema, seconds=seconds)


async def set_back(db: AsyncEngine, schema: str, seconds: int, *, reason: str) -> None:
    """Moves the cursor back by the last `seconds` of events before it. Waits for the batch that is being published: its
    end must not move the cursor forward again.
    """
    async with db.begin() as connection:
        await connection.execute(outbox_statement("lock", schema))
        moved = (await connection.execute(text(set_back_statement(schema, seconds)))).first()
    if moved is not None and moved.now < moved.before:
        log.warning("relay.republishes", source=schema, reason=reason, after_id=moved.now, to_id=moved.before)


class Republisher:
    """Watches the Redis that has the event log, for one service. A log elsewhere is durable and not watched. `is_away`
    if Redis did not answer the last `check`.
    """

    def __init__(self, db: AsyncEngine, redis: Redis, schema: str) -> None:
        self._db, self._redis, self._schema = db, redis, schema
        self._processes: dict[str, str] = {}
        self.is_away = False

    async def check(self) -> bool:
        """Compares each stream's Redis process with the stored one; whether events are published again: the last hour,
        or the last seconds if another process was first to notice, as this one may have written to the old Redis.
        """
        try:
            now = await identities(self._redis, NAMES)
            pipe = self._redis.pipeline(transaction=False)
            for stream in now:
                pipe.get(self._mark_key(stream))
            marks = dict(zip(now, await pipe.execute(), strict=True))
        except REDIS_AWAY:
            self.is_away = True
            return False
        self.is_away = False
        changed = [stream for stream, process in now.items() if marks[stream] != process.encode()]
        has_switched = any(self._processes.get(stream, process) != process for stream, process in now.items())
        if changed or has_switched:
            await set_back(self._db, self._schema, REPUBLISH_S if changed else SWITCH_S, reason="another Redis")
        for stream in changed:
            await self._redis.set(self._mark_key(stream), now[stream])
        self._processes |= now
        return bool(changed or has_switched)

    def _mark_key(self, stream: str) -> str:
        return f"{stream}:published_to:{self._schema}"
