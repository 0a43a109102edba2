"""Fans outside the rolled-out share pass the line by: they are called at once while a slot is free.

Their calls cost no token and are saved like any other, so nobody in the line is called later because of them.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from prometheus_client import Counter
from sqlalchemy import text

from features.rollout.rules import outside, percent_of
from services.queue.line.redis_line import PLACES_MAX, PRELUDE, RedisLine
from services.queue.line.repository import PlaceId, by_lane
from services.queue.rooms.model import WaitingRoom
from services.queue.state import State
from shared.audit_log import of_event
from shared.concurrency.background import Loops
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import AsyncConnection
from shared.redis.client import REDIS_AWAY, Script, reply_status
from shared.web.parts import Part

ADMIT_BYPASS = Script.load(__package__, "admit_bypass", prelude=PRELUDE)
ADMISSIONS = Counter(
    "queue_bypass_admissions_total", "Calls of fans outside the rolled-out share, who bypass the queue."
)
LOWEST_ROLLOUT = text("""
    SELECT coalesce(min((after->>'rollout_percent')::float), 100)
    FROM queue.audit_log WHERE subject = :subject""")


@dataclass(frozen=True)
class Rollout:
    """The fans outside the rolled-out share of each room."""

    line: RedisLine

    def among(self, room: WaitingRoom, places: Iterable[tuple[PlaceId, str]]) -> set[PlaceId]:
        percent = percent_of(room.options)
        if percent >= 100:
            return set()
        return {place_id for place_id, holder in places if outside(room.event_id, holder, percent)}

    async def call(self, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
        called: set[PlaceId] = set()
        for lane, seqs in by_lane(sorted(place_ids)).items():
            for part in chunks(room.ranking.ranks(lane, seqs), PLACES_MAX):
                try:
                    reply = await self.line.run(ADMIT_BYPASS, room.event_id, room.ranking, lane, join_seqs=part)
                except REDIS_AWAY:
                    return called
                if reply_status(reply) == "ok":
                    called.update((lane, room.ranking.entry(lane, rank)) for rank in reply[1:])
        ADMISSIONS.inc(len(called))
        return called

    async def ever_among(self, connection: AsyncConnection, room: WaitingRoom) -> Callable[[str], bool] | None:
        subject = {"subject": of_event(room.event_id)}
        lowest = float((await connection.execute(LOWEST_ROLLOUT, subject)).scalar_one())
        return partial(outside, room.event_id, percent=lowest) if lowest < 100 else None


@asynccontextmanager
async def open_rollout(state: State, loops: Loops) -> AsyncIterator[Rollout]:
    """From now on, those outside the share are called at once."""
    state.rules.bypass = rollout = Rollout(state.line)
    yield rollout


PART = Part(open=open_rollout)
