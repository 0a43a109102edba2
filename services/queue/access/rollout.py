"""Fans outside the rolled-out share bypass the queue: they are called at once while a slot is free.

Their calls cost no token and are saved like any other, so nobody in the line is called later because of them.
"""

from collections.abc import Iterable

from services.queue.line.redis_line import PLACES_MAX, PRELUDE, RedisLine
from services.queue.line.repository import PlaceId, by_lane
from services.queue.metrics import BYPASS_ADMISSIONS
from services.queue.rooms.model import WaitingRoom
from shared.concurrency.coalescing import chunks
from shared.redis.client import REDIS_AWAY, Script, reply_status
from shared.rules.rollout import outside

ADMIT_BYPASS = Script.load(__package__, "admit_bypass", prelude=PRELUDE)


def bypass_candidates(room: WaitingRoom, place_ids: Iterable[tuple[PlaceId, str]]) -> set[PlaceId]:
    """The places outside the rolled-out share, of these places and their holders."""
    percent = room.options.rollout_percent
    if percent >= 100:
        return set()
    return {place_id for place_id, holder in place_ids if outside(room.event_id, holder, percent)}


async def admit_bypass(line: RedisLine, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
    """Calls these places; those that were called. Nobody is called while Redis is unavailable."""
    admitted: set[PlaceId] = set()
    for lane, seqs in by_lane(sorted(place_ids)).items():
        for part in chunks(room.ranking.ranks(lane, seqs), PLACES_MAX):
            try:
                reply = await line.run(ADMIT_BYPASS, room.event_id, room.ranking, lane, join_seqs=part)
            except REDIS_AWAY:
                return admitted
            if reply_status(reply) == "ok":
                admitted.update((lane, room.ranking.entry(lane, rank)) for rank in reply[1:])
    BYPASS_ADMISSIONS.inc(len(admitted))
    return admitted
