"""Fans outside the rolled-out share are called beside the line, at once, as long as a slot is free.

Their calls cost no token and stand in the ledger like any other; nobody in the line is called later for it.
"""

from collections.abc import Iterable

from services.queue import redis_keys
from services.queue.line.redis_line import PLACES_MAX, RedisLine
from services.queue.line.repository import PlaceId, by_lane
from services.queue.metrics import PASSED_BY
from services.queue.rooms.model import WaitingRoom
from shared.contracts.queue import PlaceRef
from shared.redis.client import REDIS_AWAY
from shared.redis.scripts import Script, word
from shared.rules.rollout import outside

PASS_BY = Script.load(__package__, "pass_by")


def bypass_candidates(room: WaitingRoom, seats: Iterable[tuple[PlaceId, str]]) -> set[PlaceId]:
    """Those of these places, each with its holder, that are outside the share."""
    percent = room.options.rollout_percent
    return {seat for seat, holder in seats if outside(room.event_id, holder, percent)} if percent < 100 else set()


def refs(places: Iterable[PlaceRef]) -> Iterable[tuple[PlaceId, str]]:
    """Places as tokens name them, each with its holder."""
    return (((place.lane, place.join_seq), place.holder) for place in places)


async def admit_bypass(line: RedisLine, room: WaitingRoom, seats: Iterable[PlaceId]) -> set[PlaceId]:
    """Which of these were called now. An engine that is away calls nobody."""
    passed: set[PlaceId] = set()
    for lane, seqs in by_lane(sorted(seats)).items():
        ranks = room.draw.ranks(lane, seqs)
        for start in range(0, len(ranks), PLACES_MAX):
            try:
                reply = await line.ask(
                    room.event_id,
                    PASS_BY,
                    room=redis_keys.room(room.event_id),
                    called=redis_keys.called(room.event_id, room.epoch),
                    active=redis_keys.active(room.event_id, room.epoch),
                    misses=redis_keys.misses(room.event_id, room.epoch),
                    unwritten=redis_keys.unwritten(room.event_id, room.epoch),
                    taken=redis_keys.taken(room.event_id, room.epoch, lane),
                    done=redis_keys.done(room.event_id, room.epoch, lane),
                    epoch=room.draw.generation,
                    lane=lane,
                    clock_offset_ms=line.clock_offset_ms,
                    join_seqs=ranks[start : start + PLACES_MAX],
                )
            except REDIS_AWAY:
                return passed
            if word(reply) == "ok":
                passed.update((lane, room.draw.entry(lane, rank)) for rank in reply[1:])
    PASSED_BY.inc(len(passed))
    return passed
