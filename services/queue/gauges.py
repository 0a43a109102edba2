"""Gauges of the lines that are too dear for every tick: Redis' memory of each, and how right a shown position is."""

import random
from contextlib import suppress

from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue import redis_keys
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.metrics import LINE_MEMORY, POSITION_ERROR
from shared.contracts.frames import LineFrame
from shared.postgres.engine import DB_AWAY, statement
from shared.redis.client import REDIS_AWAY, Redis

REFRESH_S, SAMPLED_AHEAD_MAX = 30.0, 50_000  # a recount reads one row for each place before the sample
COUNT_LIVE = statement(__package__, "count_live_places")


async def refresh_gauges(gatekeeper: Gatekeeper, db: AsyncEngine, redis: Redis) -> None:
    """Samples one place of each waiting line. A line that cannot be read keeps its gauges."""
    for event_id, frame in list(gatekeeper.frames.last.items()):
        with suppress(*DB_AWAY):
            await _sample_position(db, frame)
        with suppress(*REDIS_AWAY):
            async with redis.pipeline(transaction=False) as pipeline:
                for key in redis_keys.parts(event_id, frame.epoch, frame.lanes):
                    pipeline.memory_usage(key)
                LINE_MEMORY.labels(event_id).set(sum(size or 0 for size in await pipeline.execute()))


async def _sample_position(db: AsyncEngine, frame: LineFrame) -> None:
    waiting = {lane: at.tail_seq - at.head_seq for lane, at in frame.lanes.items() if at.tail_seq > at.head_seq}
    if not waiting:
        POSITION_ERROR.labels(frame.event_id).set(0)
        return
    lane = random.choices(list(waiting), list(waiting.values()))[0]  # noqa: S311 - a sample
    shown = random.randint(1, min(waiting[lane], SAMPLED_AHEAD_MAX))  # noqa: S311
    place = {"event_id": frame.event_id, "epoch": frame.epoch, "lane": lane, "head_seq": frame.lanes[lane].head_seq}
    async with db.connect() as connection:
        alive = await connection.scalar(COUNT_LIVE, {**place, "ahead": shown})
    POSITION_ERROR.labels(frame.event_id).set(shown - alive)
