"""Autotune moves a room's rate within the operator's bounds: up a little while there is no overload and the rate limits
the line, down a lot during overload; at most once in ten seconds over all processes. Every change is in the audit log.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import Gauge
from sqlalchemy import text

from features.autotune.queue.capacity_plan import router
from features.autotune.rules import AutotunePace
from services.queue.admission.ceiling import LoadCache, Overload
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.rooms.store import NOT_RUNNING, Rooms
from services.queue.state import State
from shared.audit_log import of_event
from shared.concurrency.background import Loops, Quiet
from shared.contracts.file_parts import part_of
from shared.contracts.frames import LineFrame
from shared.errors.problems import VersionMismatch
from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger
from shared.web.parts import Part

log = get_logger("onsale.queue")
AUTOTUNE = Gauge("queue_autotune_rate_per_s", "The rate that autotune would set or has set.", ["event_id"])
ACTOR = "autotune"
CHECK_S, INTERVAL_S = 0.5, 10.0
UP, DOWN = 1.05, 0.8
USED_UP = 0.9
ADJUSTED_RECENTLY = text(
    "SELECT EXISTS (SELECT FROM queue.audit_log WHERE subject = :subject AND actor = :actor "
    "AND at > clock_timestamp() - make_interval(secs => :seconds))"
)


def target_rate(rate_per_s: float, pace: AutotunePace, frame: LineFrame, overload: Overload | None) -> float:
    """The rate to set now; the present one while there is no reason to change it."""
    assert pace.rate_min is not None
    assert pace.rate_max is not None
    wanted = rate_per_s
    if overload:
        wanted = rate_per_s * DOWN
    elif frame.throttled is None and _wants_more(rate_per_s, frame):
        wanted = rate_per_s * UP
    return round(min(pace.rate_max, max(pace.rate_min, wanted)), 3)


def _wants_more(rate_per_s: float, frame: LineFrame) -> bool:
    """Whether fans wait, slots are free, and as many are called as the rate allows."""
    calling = frame.ready and frame.state in ("open", "draining") and frame.calls_per_s is not None
    return frame.has_waiting and calling and not frame.full and (frame.calls_per_s or 0) >= USED_UP * rate_per_s


@dataclass
class Autotune:
    """`target_rates`: the rate of each room that autotune would set or has set. Any number of processes may run it."""

    rooms: Rooms
    gatekeeper: Gatekeeper
    load_cache: LoadCache
    target_rates: dict[str, float]

    async def run_once(self) -> Quiet | None:
        """Adjusts every running room once; one whose engines are unavailable is skipped. Quiet while no rate follows
        the demand.
        """
        for room in list(self.rooms.known.values()):
            if part_of(room.options.pace, AutotunePace).autotune == "off":
                self.target_rates.pop(room.event_id, None)
            elif room.state not in NOT_RUNNING:
                try:
                    await self._adjust(room)
                except (*REDIS_AWAY, *DB_AWAY) as away:
                    log.info("autotune.unavailable", event_id=room.event_id, error=type(away).__name__)
        return None if self.target_rates else Quiet()

    async def _adjust(self, room: WaitingRoom) -> None:
        frame = self.gatekeeper.frames.last.get(room.event_id)
        if frame is None or frame.epoch != room.epoch:
            return
        pace = part_of(room.options.pace, AutotunePace)
        overload = self.load_cache.checkout(slow_ms=room.options.pace.slow_ms).overload
        target = self.target_rates[room.event_id] = target_rate(room.rate_per_s, pace, frame, overload)
        AUTOTUNE.labels(room.event_id).set(target)
        if pace.autotune == "observe" or target == room.rate_per_s or await self._adjusted_recently(room.event_id):
            return
        reason = overload or ("fans wait and the rate limits" if target > room.rate_per_s else "within its bounds")
        try:
            by = RequestedBy(ACTOR, reason, room.version)
            changed = await self.rooms.change(room.event_id, {"rate_per_s": target}, by)
        except VersionMismatch:
            return  # an operator, or another process, was first
        await self.gatekeeper.apply_config(changed)

    async def _adjusted_recently(self, event_id: str) -> bool:
        values = {"subject": of_event(event_id), "actor": ACTOR, "seconds": INTERVAL_S}
        async with self.rooms.db.connect() as connection:
            return bool((await connection.execute(ADJUSTED_RECENTLY, values)).scalar_one())


@asynccontextmanager
async def open_autotune(state: State, loops: Loops) -> AsyncIterator[Autotune]:
    load_cache = state.control_loop.ceilings.load_cache
    autotune = Autotune(state.rooms, state.gatekeeper, load_cache, state.operations.target_rates)
    loops.every(CHECK_S, autotune.run_once, name="queue autotune")
    yield autotune


PART = Part(routers=[router], open=open_autotune)
