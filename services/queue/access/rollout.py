"""Fans outside the rolled-out share bypass the queue: they are called at once while a slot is free.

Their calls cost no token and are saved like any other, so nobody in the line is called later because of them.
"""

from collections.abc import Iterable

from services.queue import redis_keys
from services.queue.line.redis_line import PLACES_MAX, PRELUDE, RedisLine
from services.queue.line.repository import PlaceId, by_lane
from services.queue.metrics import BYPASS_ADMISSIONS
from services.queue.rooms.model import WaitingRoom
from shared.contracts.queue import PlaceRef
from shared.redis.client import REDIS_AWAY
from shared.redis.scripts import Script, reply_status
from shared.rules.rollout import outside

ADMIT_BYPASS = Script.load(__package__, "admit_bypass", prelude=PRELUDE)


def bypass_candidates(room: WaitingRoom, place_ids: Iterable[tuple[PlaceId, str]]) -> set[PlaceId]:
    """The places outside the rolled-out share, of these places and their holders."""
    percent = room.options.rollout_percent
    return (
        {place_id for place_id, holder in place_ids if outside(room.event_id, holder, percent)}
        if percent < 100
        else set()
    )


def with_holders(places: Iterable[PlaceRef]) -> Iterable[tuple[PlaceId, str]]:
    """Places as queue tokens name them, each with its holder."""
    return (((place.lane, place.join_seq), place.holder) for place in places)


async def admit_bypass(line: RedisLine, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
    """Calls these places; those that were called. Nobody is called while Redis is unavailable."""
    admitted: set[PlaceId] = set()
    for lane, seqs in by_lane(sorted(place_ids)).items():
        ranks = room.ranking.ranks(lane, seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            try:
                reply = await line.run_script(
                    room.event_id,
                    ADMIT_BYPASS,
                    room=redis_keys.room(room.event_id),
                    called=redis_keys.called(room.event_id, room.epoch),
                    active=redis_keys.active(room.event_id, room.epoch),
                    misses=redis_keys.misses(room.event_id, room.epoch),
                    unwritten=redis_keys.unwritten(room.event_id, room.epoch),
                    taken=redis_keys.taken(room.event_id, room.epoch, lane),
                    done=redis_keys.done(room.event_id, room.epoch, lane),
                    epoch=room.ranking.epoch_token,
                    lane=lane,
                    clock_offset_ms=line.clock_offset_ms,
                    join_seqs=ranks[start : start + PLACES_MAX],
                )
            except REDIS_AWAY:
                return admitted
            if reply_status(reply) == "ok":
                admitted.update((lane, room.ranking.entry(lane, rank)) for rank in reply[1:])
    BYPASS_ADMISSIONS.inc(len(admitted))
    return admitted
