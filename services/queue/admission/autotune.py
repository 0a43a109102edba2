"""Autotune: moves the rate itself, within the operator's bounds, by what the others bear and what the line asks for.

It raises the rate a little while all is well and the rate is what holds the line up, and lowers it much while there is
overload; never twice within its interval, whichever process acts. Every move is in the audit trail, by `autotune`.

What steers rooms besides the operator: once a second the guard, then autotune, and the end of what a reset began.
"""

import logging
from dataclasses import dataclass, field

from sqlalchemy import text

from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.admission.overload import Overload, OverloadThrottle
from services.queue.line.sessions import PassInvalidation
from services.queue.metrics import AUTOTUNE
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.frames import LineFrame
from shared.contracts.room_options import PaceRules
from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data
from shared.web.problems import Problem, VersionMismatch

ACTOR = "autotune"
UP, DOWN = 1.05, 0.8
USED_UP = 0.9
RECENT = text(
    "SELECT EXISTS (SELECT FROM queue.room_change WHERE event_id = :event_id AND actor = :actor "
    "AND at > clock_timestamp() - make_interval(secs => :seconds))"
)


def tuned(rate_per_s: float, pace: PaceRules, frame: LineFrame, overload: Overload | None) -> float:
    """The rate it would set now; the same while there is no reason to move."""
    assert pace.rate_min is not None
    assert pace.rate_max is not None
    wanted = rate_per_s
    if overload:
        wanted = rate_per_s * DOWN
    elif frame.throttled is None and _wants_more(rate_per_s, frame):
        wanted = rate_per_s * UP
    return round(min(pace.rate_max, max(pace.rate_min, wanted)), 3)


def _wants_more(rate_per_s: float, frame: LineFrame) -> bool:
    """Somebody waits, slots are free, and as many are called as the rate allows."""
    waiting = any(lane.tail_seq > lane.head_seq for lane in frame.lanes.values())
    calling = frame.ready and frame.state in ("open", "draining") and frame.calls_per_s is not None
    return waiting and calling and not frame.full and (frame.calls_per_s or 0) >= USED_UP * rate_per_s


@dataclass
class Autotune:
    """The rates it would set (`wishes`), and the moves it made."""

    rooms: Rooms
    interval_s: float = 10.0
    wishes: dict[str, float] = field(default_factory=dict)

    async def turn(self, room: WaitingRoom, frame: LineFrame, overload: Overload | None) -> WaitingRoom | None:
        """The room as it changed it, if it did."""
        pace = room.options.pace
        if pace.autotune == "off":
            self.wishes.pop(room.event_id, None)
            return None
        wish = self.wishes[room.event_id] = tuned(room.rate_per_s, pace, frame, overload)
        AUTOTUNE.labels(room.event_id).set(wish)
        if pace.autotune == "observe" or wish == room.rate_per_s or await self._moved_lately(room.event_id):
            return None
        reason = overload or ("the line asks for more" if wish > room.rate_per_s else "within its bounds")
        try:
            return await self.rooms.change(
                room.event_id, {"rate_per_s": wish}, actor=ACTOR, action="change", reason=reason, version=room.version
            )
        except VersionMismatch:
            return None  # an operator, or another process, was first

    async def _moved_lately(self, event_id: str) -> bool:
        values = {"event_id": event_id, "actor": ACTOR, "seconds": self.interval_s}
        async with self.rooms.db.connect() as connection:
            return bool((await connection.execute(RECENT, values)).scalar_one())


log = logging.getLogger("onsale.queue")
STEERED = frozenset({"open", "paused", "draining"})


@dataclass
class ControlLoop:
    """Turns every open room; any number of processes may."""

    rooms: Rooms
    gatekeeper: Gatekeeper
    guard: OverloadThrottle
    autotune: Autotune
    floors: PassInvalidation

    async def turn(self) -> None:
        """One turn of all rooms; an engine that is away is the gatekeeper's business."""
        for room in list(self.rooms.known.values()):
            if room.state not in STEERED:
                self.guard.forget(room.event_id)
                continue
            try:
                await self._steer(room)
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.info("steering.away", extra=data(event_id=room.event_id, error=type(away).__name__))
        for room in list(self.rooms.known.values()):
            await self._kill_old_passes(room)

    async def _kill_old_passes(self, room: WaitingRoom) -> None:
        """Until inventory has heard of a reset it is told again, whoever began it and whatever became of them."""
        try:
            await self.floors.raised(room)
        except Problem as silent:
            log.warning("reset.passes_not_killed", extra=data(event_id=room.event_id, error=silent.slug))

    async def _steer(self, room: WaitingRoom) -> None:
        overload = await self.guard.turn(room)
        frame = self.gatekeeper.frames.last.get(room.event_id)
        if frame is None or frame.epoch != room.epoch:
            return
        changed = await self.autotune.turn(room, frame, overload)
        if changed is not None:
            await self.gatekeeper.apply_config(changed)
