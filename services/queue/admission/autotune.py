"""The control loop: once a second it adjusts each room's ceiling and, by autotune, its rate.

Autotune moves the rate within the operator's bounds: up a little while there is no overload and the rate limits the
line, down a lot during overload; at most once in its interval over all processes. Every change is in the audit log. The
loop also finishes the pass invalidation of a reset.
"""

from dataclasses import dataclass, field

from sqlalchemy import text

from services.queue.admission.ceiling import Ceilings, Overload
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.metrics import AUTOTUNE
from services.queue.places.sessions import PassInvalidation
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.rooms.store import Rooms
from shared.audit_log import of_event
from shared.concurrency.background import Quiet
from shared.contracts.frames import LineFrame
from shared.contracts.room_options import PaceRules
from shared.errors.problems import Problem, VersionMismatch
from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
ACTOR = "autotune"
UP, DOWN = 1.05, 0.8
USED_UP = 0.9
ADJUSTED_RECENTLY = text(
    "SELECT EXISTS (SELECT FROM queue.audit_log WHERE subject = :subject AND actor = :actor "
    "AND at > clock_timestamp() - make_interval(secs => :seconds))"
)


def target_rate(rate_per_s: float, pace: PaceRules, frame: LineFrame, overload: Overload | None) -> float:
    """The rate to set now; the present one while there is no reason to change it."""
    assert pace.rate_min is not None
    assert pace.rate_max is not None
    wanted = rate_per_s
    if overload:
        wanted = rate_per_s * DOWN
    elif frame.throttled is None and _wants_more(rate_per_s, frame):
        wanted = rate_per_s * UP
    return round(min(pace.rate_max, max(pace.rate_min, wanted)), 3)


def has_waiting(frame: LineFrame) -> bool:
    return any(lane.tail_seq > lane.head_seq for lane in frame.lanes.values())


def _wants_more(rate_per_s: float, frame: LineFrame) -> bool:
    """Whether fans wait, slots are free, and as many are called as the rate allows."""
    calling = frame.ready and frame.state in ("open", "draining") and frame.calls_per_s is not None
    return has_waiting(frame) and calling and not frame.full and (frame.calls_per_s or 0) >= USED_UP * rate_per_s


@dataclass
class Autotune:
    """`target_rates`: the rate of each room that autotune would set or has set."""

    rooms: Rooms
    interval_s: float = 10.0
    target_rates: dict[str, float] = field(default_factory=dict)

    async def adjust(self, room: WaitingRoom, frame: LineFrame, overload: Overload | None) -> WaitingRoom | None:
        """Changes the room's rate; the changed room, if it was changed."""
        pace = room.options.pace
        if pace.autotune == "off":
            self.target_rates.pop(room.event_id, None)
            return None
        target = self.target_rates[room.event_id] = target_rate(room.rate_per_s, pace, frame, overload)
        AUTOTUNE.labels(room.event_id).set(target)
        if pace.autotune == "observe" or target == room.rate_per_s or await self._adjusted_recently(room.event_id):
            return None
        reason = overload or ("fans wait and the rate limits" if target > room.rate_per_s else "within its bounds")
        try:
            by = RequestedBy(ACTOR, reason, room.version)
            return await self.rooms.change(room.event_id, {"rate_per_s": target}, by)
        except VersionMismatch:
            return None  # an operator, or another process, was first

    async def _adjusted_recently(self, event_id: str) -> bool:
        values = {"subject": of_event(event_id), "actor": ACTOR, "seconds": self.interval_s}
        async with self.rooms.db.connect() as connection:
            return bool((await connection.execute(ADJUSTED_RECENTLY, values)).scalar_one())


CONTROLLED = frozenset({"open", "paused", "draining"})


@dataclass
class ControlLoop:
    """Adjusts every running room. Any number of processes may run it."""

    rooms: Rooms
    gatekeeper: Gatekeeper
    ceilings: Ceilings
    autotune: Autotune
    pass_invalidation: PassInvalidation

    async def run_once(self) -> Quiet | None:
        """Adjusts all rooms once; a room whose Redis is unavailable is skipped. Quiet while nothing is to be adjusted:
        without a load that any service feels, a throttle, or a rate that follows the demand.
        """
        for room in list(self.rooms.known.values()):
            if room.state not in CONTROLLED:
                self.ceilings.forget(room.event_id)
                continue
            try:
                await self._adjust(room)
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.info("control_loop.unavailable", event_id=room.event_id, error=type(away).__name__)
        for room in list(self.rooms.known.values()):
            await self.invalidate_old_passes(room)
        adjusts = self.ceilings.is_active or bool(self.autotune.target_rates)
        return None if adjusts else Quiet()

    async def invalidate_old_passes(self, room: WaitingRoom) -> None:
        """Has inventory refuse the passes from before a reset. The loop repeats it until inventory has confirmed,
        whichever process began it; the first claim of the new line waits for it.
        """
        try:
            await self.pass_invalidation.ensure(room)
        except Problem as failed:
            log.warning("room.passes_not_invalidated", event_id=room.event_id, error=failed.slug)

    async def _adjust(self, room: WaitingRoom) -> None:
        frame, held_back = self.gatekeeper.frames.last.get(room.event_id), room.event_id in self.gatekeeper.held_back
        overload = await self.ceilings.adjust(room, share=self._share(room), held_back=held_back)
        if frame is None or frame.epoch != room.epoch:
            return
        changed = await self.autotune.adjust(room, frame, overload)
        if changed is not None:
            await self.gatekeeper.apply_config(changed)

    def _share(self, room: WaitingRoom) -> float:
        """Of what is in work at checkout, by the rates of the rooms in which fans wait."""
        last, known = self.gatekeeper.frames.last, self.rooms.known
        rates = {name: one.rate_per_s for name, one in known.items() if name in last and has_waiting(last[name])}
        in_all = sum(rates.values())
        return room.rate_per_s / in_all if room.event_id in rates and in_all else 1.0
