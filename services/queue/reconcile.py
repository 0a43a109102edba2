"""The slots of each line held against the ledger, every other second: what was lost between the two is made good.

A turn looks at a bounded part of the slots that the engine holds and of those that the ledger counts, and the next goes
on behind them, so its cost depends on neither the line nor the sale.

- A holder who bought and still has a place: its end did not get through (gates or inventory could not be told, or the
  process died). It is ended now; a live reservation lets it stand, and it is asked for again.
- A slot of a place that has ended in the ledger is free: a place that has ended never comes back.
- A slot that only one side knows, with no change on its way to the ledger, in two turns running: one side has lost
  something, and the line is filled anew.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import compress

from services.queue import redis_keys
from services.queue.line.redis_line import RedisLine
from services.queue.line.replies import change
from services.queue.line.repository import LineRepository, PlaceId, PlaceRow
from services.queue.line.sessions import Sessions
from services.queue.metrics import RECONCILED
from services.queue.recovery import Recovery
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.queue")
SLOTS_MAX, UNWRITTEN_MAX = 5_000, 2_500
NOWHERE: PlaceId = (-1, -1)


@dataclass
class _Look:
    """Where the next turn of a room goes on, and which places differed in this one, with the filling they did so in."""

    of_epoch: int
    ledger_from: PlaceId = NOWHERE
    called_from: int = 0
    active_from: int = 0
    fill: int = 0
    differing: set[PlaceId] = field(default_factory=set)


@dataclass
class SlotReconciler:
    """Turns every room; any number of processes may."""

    db: AsyncEngine
    line: RedisLine
    rooms: Rooms
    sessions: Sessions
    recovery: Recovery
    _looks: dict[str, _Look] = field(default_factory=dict)

    async def turn(self) -> None:
        """One look at every room; what is away is looked at again in the next."""
        for room in list(self.rooms.known.values()):
            try:
                await self._look(room)
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.info("reconcile.away", extra=data(event_id=room.event_id, error=type(away).__name__))
            except Problem as silent:
                log.info("reconcile.not_ended", extra=data(event_id=room.event_id, error=silent.slug))

    async def _look(self, room: WaitingRoom) -> None:
        look = self._looks.get(room.event_id)
        if look is None or look.of_epoch != room.epoch:
            look = self._looks[room.event_id] = _Look(room.epoch)
        async with self.db.connect() as connection:
            of = LineRepository(connection, room.event_id, room.epoch)
            counted = await of.open_slots(look.ledger_from, slots_max=SLOTS_MAX)
            look.ledger_from = counted[-1] if len(counted) == SLOTS_MAX else NOWHERE
            seats = {*counted, *await self._held(room, look), *look.differing}
            stands = await of.get_places(seats) if seats else {}
        if not seats:
            return
        slots = await self._with_slot(room, seats)
        ended = [seat for seat in slots if seat in stands and stands[seat].how is not None]
        await self._differ(room, look, {seat for seat in seats if _is_open(stands.get(seat)) != (seat in slots)})
        if ended:
            await self.sessions.free(room.event_id, room.epoch, ended)
            RECONCILED.labels("freed").inc(len(ended))
        bought = [stand for stand in stands.values() if stand.bought]
        RECONCILED.labels("bought").inc(len(await self.sessions.end_bought(room.event_id, room.epoch, bought)))

    async def _held(self, room: WaitingRoom, look: _Look) -> list[PlaceId]:
        """The next part of the slots in the engine."""
        pipe = self.line.redis.pipeline(transaction=False)
        for part, start in ((redis_keys.called, look.called_from), (redis_keys.active, look.active_from)):
            pipe.zrangebyscore(part(room.event_id, room.epoch), "-inf", "(inf", start=start, num=SLOTS_MAX)
        called, active = await pipe.execute()
        look.called_from = look.called_from + SLOTS_MAX if len(called) == SLOTS_MAX else 0
        look.active_from = look.active_from + SLOTS_MAX if len(active) == SLOTS_MAX else 0
        ranks = (tuple(map(int, place.split(b":"))) for place in (*called, *active))
        return [(lane, room.draw.entry(lane, rank)) for lane, rank in ranks]

    async def _with_slot(self, room: WaitingRoom, seats: Collection[PlaceId]) -> set[PlaceId]:
        """Those of the places that hold a slot in the engine now."""
        names = [f"{lane}:{room.draw.rank(lane, seq)}" for lane, seq in seats]
        pipe = self.line.redis.pipeline(transaction=False)
        for part in (redis_keys.called, redis_keys.active):
            pipe.zmscore(part(room.event_id, room.epoch), names)
        called, active = await pipe.execute()
        return set(compress(seats, (a is not None or b is not None for a, b in zip(called, active, strict=True))))

    async def _differ(self, room: WaitingRoom, look: _Look, differing: Iterable[PlaceId]) -> None:
        """Fills the line anew for places that differ a second time."""
        pipe = self.line.redis.pipeline(transaction=False)
        pipe.hget(redis_keys.room(room.event_id), "fill")
        pipe.zrangebyscore(redis_keys.unwritten(room.event_id, room.epoch), "-inf", "(inf", start=0, num=UNWRITTEN_MAX)
        fill, changes = await pipe.execute()
        on_their_way = {(c.lane, room.draw.entry(c.lane, c.join_seq)) for c in map(change, changes)}
        differing = set(differing) - on_their_way if len(changes) < UNWRITTEN_MAX else set()
        again = differing & look.differing if int(fill or 0) == look.fill else set()
        look.fill, look.differing = int(fill or 0), differing
        if again and await self.recovery.rebuild(room.event_id, differs_in=look.fill):
            log.warning("reconcile.filled", extra=data(event_id=room.event_id, places=sorted(again)[:5]))
            RECONCILED.labels("filled").inc()


def _is_open(stand: PlaceRow | None) -> bool:
    """Whether the ledger counts a slot for this place."""
    return stand is not None and stand.how is None and stand.state in ("called", "claimed")
