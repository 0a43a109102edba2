"""The overload guard: while inventory or orders cannot keep up, fewer fans are called, until they can again.

It lowers the share of the rate in steps and gives it back slowly; the share lives in the engine, so that any number of
processes guard as one. It never goes below the room's floor, and silence of the others never stops the line.
"""

import logging
from dataclasses import dataclass, field

from services.queue import keys
from services.queue.line import Line
from services.queue.metrics import THROTTLED, THROTTLES
from services.queue.overload import LoadBoard, Overload
from services.queue.room import Room
from shared.contracts.frames import Throttled
from shared.logs import data
from shared.lua import Script, word

log = logging.getLogger("onsale.queue")
THROTTLE = Script.load(__package__, "throttle")
DOWN = 0.7  # from everything to a tenth in seven steps
FORGET_MS = 1


@dataclass
class Guard:
    """What each room is throttled to. `seen` is what the guard would do, `applied` what it does."""

    line: Line
    board: LoadBoard
    step_ms: int = 2000
    recover_ms: int = 60_000
    seen: dict[str, Throttled] = field(default_factory=dict)
    applied: dict[str, Throttled] = field(default_factory=dict)

    async def turn(self, room: Room) -> Overload | None:
        """Moves the room's share by what the others show; the overload, if there is one."""
        pace = room.options.pace
        overload = self.board.overload(slow_ms=pace.slow_ms)
        if pace.guard == "off" and room.event_id not in self.seen:
            return overload
        share = await self._share(room, overload)
        if share is not None:
            self._note(room, share, overload)
        return overload

    def forget(self, event_id: str) -> None:
        """The room calls nobody: there is nothing to guard."""
        self.seen.pop(event_id, None)
        self.applied.pop(event_id, None)

    async def _share(self, room: Room, overload: Overload | None) -> float | None:
        """The room's share after this move; nothing while the engine is being filled."""
        pace = room.options.pace
        reply = await THROTTLE(
            self.line.redis,
            room=keys.room(room.event_id),
            epoch=room.epoch,
            overload=int(overload is not None and pace.guard != "off"),
            obeyed=int(pace.guard == "on"),
            floor=pace.guard_floor,
            down=DOWN,
            step_ms=self.step_ms,
            recover_ms=FORGET_MS if pace.guard == "off" else self.recover_ms,
            clock_offset_ms=self.line.clock_offset_ms,
        )
        return float(reply[1]) if word(reply) == "ok" else None

    def _note(self, room: Room, share: float, overload: Overload | None) -> None:
        name, mode = room.event_id, room.options.pace.guard
        THROTTLED.labels(name).set(share if mode == "on" else 1)
        before = self.seen.get(name)
        self.forget(name)
        if share < 1:
            self.seen[name] = Throttled(factor=round(share, 2), reason=overload or "easing")
            if mode == "on":
                self.applied[name] = self.seen[name]
        if overload and (before is None or before.reason == "easing"):
            THROTTLES.labels(overload).inc()
            log.warning("guard.throttles", extra=data(event_id=name, reason=overload, mode=mode))
