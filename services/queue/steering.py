"""What steers the open rooms besides the operator: once a second the guard's turn, then autotune's."""

import logging
from dataclasses import dataclass

from services.queue.autotune import Autotune
from services.queue.gatekeeper import Gatekeeper
from services.queue.guard import Guard
from services.queue.rooms import Room, Rooms
from shared.logs import data
from shared.postgres import LEDGER_AWAY
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

    async def _steer(self, room: Room) -> None:
        overload = await self.guard.turn(room)
        frame = self.gatekeeper.frames.last.get(room.event_id)
        if frame is None or frame.epoch != room.epoch:
            return
        changed = await self.autotune.turn(room, frame, overload)
        if changed is not None:
            await self.gatekeeper.obey(changed)
