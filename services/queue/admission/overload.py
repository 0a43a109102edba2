"""The overload guard: while inventory or orders are overloaded, fewer fans are called.

It lowers the share of the rate in steps and raises it slowly afterwards, never below the room's floor. The share is
kept in Redis, so that any number of processes act as one. Overload is classified from the load frames of both services;
one slow request or one refused fan is no overload, and a stale frame counts neither way, so their silence never stops
the line.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from cachetools import TTLCache
from pydantic import ValidationError

from services.queue.line.redis_line import PRELUDE, RedisLine
from services.queue.metrics import THROTTLED, THROTTLES
from services.queue.rooms.model import WaitingRoom
from shared.contracts.frames import FRAME_STALE_S, LOAD_CHANNELS, LoadFrame, Throttled
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.redis.scripts import Script, reply_status
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
Overload = Literal["inventory-refuses", "inventory-full", "inventory-slow",
                   "orders-refuses", "orders-full", "orders-slow"]  # fmt: skip
OVERLOADS: dict[str, Overload] = {overload: overload for overload in get_args(Overload)}
PROCESSES_MAX = 1000
REFUSED_MIN, REFUSED_SHARE = 3, 0.05
WRITES_MIN, SLOW_SHARE = 5, 0.2
POOL_FULL_S = 3.0


class LoadCache:
    """The last load frame of every process of inventory and orders."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._frames: TTLCache[str, LoadFrame] = TTLCache(PROCESSES_MAX, FRAME_STALE_S, timer=clock)

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
        self._frames[frame.process] = frame

    @property
    def is_used(self) -> bool:
        """Whether any process told of writes or refusals."""
        return any(frame.writes or frame.refused for frame in self._fresh())

    def _fresh(self) -> list[LoadFrame]:
        return [frame for frame in map(self._frames.get, list(self._frames)) if frame is not None]

    def overload(self, *, slow_ms: int) -> Overload | None:
        """The worst overload by the fresh frames, if any."""
        fresh = self._fresh()
        for service in ("inventory", "orders"):
            level = classify([frame for frame in fresh if frame.service == service], slow_ms=slow_ms)
            if level is not None:
                return OVERLOADS[f"{service}-{level}"]
        return None


def classify(frames: Iterable[LoadFrame], *, slow_ms: int) -> str | None:
    """The overload of one service by the frames of its processes: `refuses`, `full`, `slow` or none."""
    shown = list(frames)
    writes = sum(frame.writes for frame in shown)
    refused = sum(frame.refused for frame in shown)
    slow = sum(frame.writes for frame in shown if frame.p95_ms >= slow_ms)
    if refused >= REFUSED_MIN and refused >= REFUSED_SHARE * writes:
        return "refuses"
    if shown and 2 * sum(frame.pool_full_s >= POOL_FULL_S for frame in shown) >= len(shown):
        return "full"
    if slow >= max(WRITES_MIN, SLOW_SHARE * writes):
        return "slow"
    return None


ADJUST_THROTTLE = Script.load(__package__, "adjust_throttle", prelude=PRELUDE)
DOWN = 0.7  # factor of a step; seven steps lower the rate to a tenth
FORGET_MS = 1


@dataclass
class OverloadThrottle:
    """The throttle of each room: `observed` as the guard would set it, `enforced` as it is set."""

    line: RedisLine
    load_cache: LoadCache
    step_ms: int = 2000
    recovery_ms: int = 60_000
    observed: dict[str, Throttled] = field(default_factory=dict)
    enforced: dict[str, Throttled] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether a rate is throttled, or any process had writes of fans within the last seconds."""
        return bool(self.observed or self.load_cache.is_used)

    async def adjust(self, room: WaitingRoom) -> Overload | None:
        """Adjusts the room's share to the present load; the overload, if there is one."""
        pace = room.options.pace
        overload = self.load_cache.overload(slow_ms=pace.slow_ms)
        if pace.guard == "off" and room.event_id not in self.observed:
            return overload
        share = await self._share(room, overload)
        if share is not None:
            self._note(room, share, overload)
        return overload

    def forget(self, event_id: str) -> None:
        """Drops the throttle of a room that calls nobody."""
        self.observed.pop(event_id, None)
        self.enforced.pop(event_id, None)

    async def _share(self, room: WaitingRoom, overload: Overload | None) -> float | None:
        """The room's share after this step; None while Redis is being rebuilt."""
        pace = room.options.pace
        reply = await self.line.run(
            ADJUST_THROTTLE,
            room.event_id,
            room.ranking,
            overload=int(overload is not None and pace.guard != "off"),
            enforced=int(pace.guard == "on"),
            floor=pace.guard_floor,
            down=DOWN,
            step_ms=self.step_ms,
            recovery_ms=FORGET_MS if pace.guard == "off" else self.recovery_ms,
        )
        return float(reply[1]) if reply_status(reply) == "ok" else None

    def _note(self, room: WaitingRoom, share: float, overload: Overload | None) -> None:
        name, mode = room.event_id, room.options.pace.guard
        THROTTLED.labels(name).set(share if mode == "on" else 1)
        before = self.observed.get(name)
        self.forget(name)
        if share < 1:
            self.observed[name] = Throttled(factor=round(share, 2), reason=overload or "easing")
            if mode == "on":
                self.enforced[name] = self.observed[name]
        if overload and (before is None or before.reason == "easing"):
            THROTTLES.labels(overload).inc()
            log.warning("throttle.lowered", event_id=name, reason=overload, mode=mode)
