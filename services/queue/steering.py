"""What steers rooms besides the operator: once a second the guard, then autotune, and the end of what a reset began."""

import logging
from dataclasses import dataclass

from services.queue.autotune import Autotune
from services.queue.floors import Floors
from services.queue.gatekeeper import Gatekeeper
from services.queue.guard import Guard
from services.queue.room import Room
from services.queue.rooms import Rooms
from shared.logs import data
from shared.postgres import LEDGER_AWAY
from shared.problems import Problem
from shared.redis import ENGINE_AWAY

log = logging.getLogger("onsale.queue")
STEERED = frozenset({"open", "paused", "draining"})


@dataclass
class Steering:
    """Turns every open room; any number of processes may."""

    rooms: Rooms
    gatekeeper: Gatekeeper
    guard: Guard
    autotune: Autotune
    floors: Floors

    async def turn(self) -> None:
        """One turn of all rooms; an engine that is away is the gatekeeper's business."""
        for room in list(self.rooms.known.values()):
            if room.state not in STEERED:
                self.guard.forget(room.event_id)
                continue
            try:
                await self._steer(room)
            except (*ENGINE_AWAY, *LEDGER_AWAY) as away:
                log.info("steering.away", extra=data(event_id=room.event_id, error=type(away).__name__))
        for room in list(self.rooms.known.values()):
            await self._kill_old_passes(room)

    async def _kill_old_passes(self, room: Room) -> None:
        """Until inventory has heard of a reset it is told again, whoever began it and whatever became of them."""
        try:
            await self.floors.raised(room)
        except Problem as silent:
            log.warning("reset.passes_not_killed", extra=data(event_id=room.event_id, error=silent.slug))

    async def _steer(self, room: Room) -> None:
        overload = await self.guard.turn(room)
        frame = self.gatekeeper.frames.last.get(room.event_id)
        if frame is None or frame.epoch != room.epoch:
            return
        changed = await self.autotune.turn(room, frame, overload)
        if changed is not None:
            await self.gatekeeper.obey(changed)
