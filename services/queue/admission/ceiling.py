"""The overload guard: a ceiling on purchases in progress, so that no more fans are let in than checkout completes.

In progress are fans who were called or let in a moment ago, and the purchases in work at inventory and orders. Time in
which a purchase waits for its payment provider is nobody's load, nor is a fan who takes time to choose. Both services
say how much they have in work and how much they complete (`shared/process/load.py`); the ceiling follows what they
complete while they are slow, and rises while it holds fans back and they are not. It is kept in Redis, so that any
number of processes act as one; the tick keeps to it, and to the room's floor: whatever checkout says, a share of the
rate is called.

A service that was heard of and is silent leaves the floor; of one that nobody ever heard of, as of a shop of somebody
else, nothing is expected.

The control loop adjusts the ceilings twice a second; it also finishes the pass invalidation of a reset.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from cachetools import TTLCache
from pydantic import ValidationError

from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.line.redis_line import PRELUDE, RedisLine
from services.queue.metrics import CEILING, THROTTLED, THROTTLES
from services.queue.places.sessions import PassInvalidation
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import NOT_RUNNING, Rooms
from shared.concurrency.background import Quiet, wake
from shared.contracts.frames import FRAME_STALE_S, LOAD_CHANNELS, LoadFrame, Throttled
from shared.errors.problems import Problem
from shared.redis.client import REDIS_AWAY, Redis, Script, reply_status
from shared.redis.pubsub import listen
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
Overload = Literal["inventory-silent", "orders-silent", "inventory-slow", "orders-slow"]
OVERLOADS: dict[str, Overload] = {overload: overload for overload in get_args(Overload)}
SERVICES = ("inventory", "orders")
PROCESSES_MAX = 1000
WORK_MIN = 10.0  # fewer purchases in work are no overload, however slow
SILENT_WORK, SLOWEST = 1e9, 1e6


class CheckoutLoad(NamedTuple):
    """What inventory and orders have in work, and what the slower of them completes a second. `slowness`: the time that
    it takes for what it has in work, by the time from which the room calls it slow, on average and by what it has in
    work now. `is_known`: at least one of them was ever heard of.
    """

    work: float = 0.0
    done_per_s: float = 0.0
    slowness: float = 0.0
    slowness_now: float = 0.0
    overload: Overload | None = None
    is_known: bool = False


class LoadCache:
    """The last load frame of every process of inventory and orders."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._frames: TTLCache[str, LoadFrame] = TTLCache(PROCESSES_MAX, FRAME_STALE_S, timer=clock)
        self._known: set[str] = set()

    async def listen(self) -> None:
        """Receives frames, without end."""
        await listen(self._redis, LOAD_CHANNELS, self.on_frame)

    def on_frame(self, raw: bytes) -> None:
        """Stores a frame until it is stale."""
        try:
            frame = LoadFrame.model_validate_json(raw)
        except ValidationError:
            log.warning("load.frame_unreadable", size=len(raw))
            return
        if frame.service in SERVICES:
            was_used = self.is_used
            self._frames[frame.process] = frame
            self._known.add(frame.service)
            if self.is_used and not was_used:
                wake("queue")  # the control loop may have paused

    @property
    def is_used(self) -> bool:
        """Whether any process told of purchases or refusals."""
        return any(frame.average_work or frame.done_per_s or frame.refused for frame in self._fresh())

    def _fresh(self) -> list[LoadFrame]:
        return [frame for frame in map(self._frames.get, list(self._frames)) if frame is not None]

    def checkout(self, *, slow_ms: int) -> CheckoutLoad:
        """What the fresh frames say. A service is slow that has more in work than it completes in `slow_ms`."""
        fresh = self._fresh()
        in_all, slower = 0.0, CheckoutLoad(is_known=bool(self._known))
        for service in SERVICES:
            shown = [frame for frame in fresh if frame.service == service]
            if not shown and service in self._known:
                return CheckoutLoad(SILENT_WORK, overload=OVERLOADS[f"{service}-silent"], is_known=True)
            work, done_per_s = sum(frame.work for frame in shown), sum(frame.done_per_s for frame in shown)
            average_work = sum(frame.average_work for frame in shown)
            slowness, slowness_now = (_slowness(each, done_per_s * slow_ms / 1000) for each in (average_work, work))
            in_all += work
            if max(slowness, slowness_now) > max(slower.slowness, slower.slowness_now):
                overload = OVERLOADS[f"{service}-slow"] if slowness > 1 else None
                slower = CheckoutLoad(0.0, done_per_s, slowness, slowness_now, overload, is_known=True)
        return slower._replace(work=in_all)


def _slowness(work: float, done: float) -> float:
    return min(SLOWEST, work / max(done, 1e-6)) if work >= WORK_MIN else 0.0


ADJUST_CEILING = Script.load(__package__, "adjust_ceiling", prelude=PRELUDE)


@dataclass
class Ceilings:
    """The ceiling of each room. `observed`: what is left of its rate by the guard while checkout is slow or the ceiling
    holds fans back; `enforced` as far as it is in force.
    """

    line: RedisLine
    load_cache: LoadCache
    observed: dict[str, Throttled] = field(default_factory=dict)
    enforced: dict[str, Throttled] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether a rate is throttled, or any process had purchases within the last seconds."""
        return bool(self.observed or self.load_cache.is_used)

    async def adjust(self, room: WaitingRoom, *, share: float = 1.0, held_back: bool = False) -> Overload | None:
        """Moves the room's ceiling by the present load of checkout, of which this room has a `share`; the overload, if
        there is one. `held_back`: the ceiling holds fans back.
        """
        pace = room.options.pace
        checkout = self.load_cache.checkout(slow_ms=pace.slow_ms)
        reply = await self.line.run(
            ADJUST_CEILING,
            room.event_id,
            room.ranking,
            enforced=int(pace.guard == "on" and checkout.is_known),
            floor=pace.guard_floor,
            at_checkout=round(checkout.work * share, 1),
            done_per_s=round(checkout.done_per_s * share, 2),
            slowness=round(checkout.slowness, 3),
            slowness_now=round(checkout.slowness_now, 3),
        )
        if reply_status(reply) == "ok" and checkout.is_known and pace.guard != "off":
            ceiling = float(reply[1])
            CEILING.labels(room.event_id).set(ceiling)
            self._note(room, ceiling, checkout, share=share, held_back=held_back)
        else:
            self.forget(room.event_id)
        return checkout.overload

    def forget(self, event_id: str) -> None:
        """Drops what is said of a room that calls nobody, or whose guard is off."""
        THROTTLED.labels(event_id).set(1)
        self.observed.pop(event_id, None)
        self.enforced.pop(event_id, None)

    def _note(
        self, room: WaitingRoom, ceiling: float, checkout: CheckoutLoad, *, share: float, held_back: bool
    ) -> None:
        name, mode, overload = room.event_id, room.options.pace.guard, checkout.overload
        before = self.observed.get(name)
        self.forget(name)
        per_s = ceiling if checkout.work * share < ceiling else 0.0  # what the ceiling admits if each takes a second
        factor = (
            round(max(room.options.pace.guard_floor, min(1.0, per_s / room.rate_per_s)), 2) if room.rate_per_s else 1
        )
        if factor < 1 and (overload or held_back):
            self.observed[name] = Throttled(factor=factor, reason=overload or "easing")
            if mode == "on":
                self.enforced[name] = self.observed[name]
                THROTTLED.labels(name).set(factor)
        if overload and (before is None or before.reason == "easing"):
            THROTTLES.labels(overload).inc()
            log.warning("throttle.lowered", event_id=name, reason=overload, mode=mode)


@dataclass
class ControlLoop:
    """Adjusts every running room. Any number of processes may run it."""

    rooms: Rooms
    gatekeeper: Gatekeeper
    ceilings: Ceilings
    pass_invalidation: PassInvalidation

    async def run_once(self) -> Quiet | None:
        """Adjusts all rooms once; a room whose Redis is unavailable is skipped. Quiet while nothing is to be adjusted:
        without a load that any service feels, or a throttle.
        """
        for room in list(self.rooms.known.values()):
            if room.state in NOT_RUNNING:
                self.ceilings.forget(room.event_id)
                continue
            try:
                held_back = room.event_id in self.gatekeeper.held_back
                await self.ceilings.adjust(room, share=self._share(room), held_back=held_back)
            except REDIS_AWAY as away:
                log.info("control_loop.unavailable", event_id=room.event_id, error=type(away).__name__)
        for room in list(self.rooms.known.values()):
            await self.invalidate_old_passes(room)
        return None if self.ceilings.is_active else Quiet()

    async def invalidate_old_passes(self, room: WaitingRoom) -> None:
        """Has inventory refuse the passes from before a reset. The loop repeats it until inventory has confirmed,
        whichever process began it; the first claim of the new line waits for it.
        """
        try:
            await self.pass_invalidation.ensure(room)
        except Problem as failed:
            log.warning("room.passes_not_invalidated", event_id=room.event_id, error=failed.slug)

    def _share(self, room: WaitingRoom) -> float:
        """Of what is in work at checkout, by the rates of the rooms in which fans wait."""
        last, known = self.gatekeeper.frames.last, self.rooms.known
        rates = {name: one.rate_per_s for name, one in known.items() if name in last and last[name].has_waiting}
        in_all = sum(rates.values())
        return room.rate_per_s / in_all if room.event_id in rates and in_all else 1.0
