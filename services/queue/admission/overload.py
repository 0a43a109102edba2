"""How inventory and orders bear their load, as they show it, and whether that is too much.

One slow request or one refused fan is no overload. A frame that is stale says nothing, in either direction.

The overload guard: while inventory or orders cannot keep up, fewer fans are called, until they can again.

It lowers the share of the rate in steps and gives it back slowly; the share lives in the engine, so that any number of
processes guard as one. It never goes below the room's floor, and silence of the others never stops the line.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from services.queue import redis_keys
from services.queue.line.redis_line import RedisLine
from services.queue.metrics import THROTTLED, THROTTLES
from services.queue.rooms.model import WaitingRoom
from shared.contracts.frames import FRAME_STALE_S, LOAD_CHANNELS, LoadFrame, Throttled
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.redis.scripts import Script, word
from shared.runtime.logging import data

log = logging.getLogger("onsale.queue")
Overload = Literal["inventory-refuses", "inventory-full", "inventory-slow",
                   "orders-refuses", "orders-full", "orders-slow"]  # fmt: skip
WORDS: dict[tuple[str, str], Overload] = {
    ("inventory", "refuses"): "inventory-refuses",
    ("inventory", "full"): "inventory-full",
    ("inventory", "slow"): "inventory-slow",
    ("orders", "refuses"): "orders-refuses",
    ("orders", "full"): "orders-full",
    ("orders", "slow"): "orders-slow",
}
PROCESSES_MAX = 1000
REFUSED_MIN, REFUSED_SHARE = 3, 0.05
WRITES_MIN, SLOW_SHARE = 5, 0.2
POOL_FULL_S = 3.0


class LoadCache:
    """The last load frame of every process of inventory and orders."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._frames: dict[str, tuple[float, LoadFrame]] = {}

    async def listen(self) -> None:
        """Reads frames for ever."""
        await listen(self._redis, LOAD_CHANNELS, self.take)

    def take(self, raw: bytes) -> None:
        """Keeps a frame; those of processes that went away are forgotten."""
        try:
            frame = LoadFrame.model_validate_json(raw)
        except ValidationError:
            log.warning("load.frame_unreadable", extra=data(size=len(raw)))
            return
        self._frames = {name: kept for name, kept in self._frames.items() if _age_s(kept) <= FRAME_STALE_S}
        if len(self._frames) < PROCESSES_MAX:
            self._frames[frame.process] = (asyncio.get_running_loop().time(), frame)

    def overload(self, *, slow_ms: int) -> Overload | None:
        """What is too much, worst first; nothing while all is well or nobody says otherwise."""
        fresh = [kept[1] for kept in self._frames.values() if _age_s(kept) <= FRAME_STALE_S]
        for service in ("inventory", "orders"):
            word = classify([frame for frame in fresh if frame.service == service], slow_ms=slow_ms)
            if word is not None:
                return WORDS[service, word]
        return None


def classify(frames: Iterable[LoadFrame], *, slow_ms: int) -> str | None:
    """One service by the frames of its processes: `refuses`, `full`, `slow` or nothing."""
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


def _age_s(kept: tuple[float, LoadFrame]) -> float:
    return asyncio.get_running_loop().time() - kept[0]


THROTTLE = Script.load(__package__, "throttle")
DOWN = 0.7  # from everything to a tenth in seven steps
FORGET_MS = 1


@dataclass
class OverloadThrottle:
    """What each room is throttled to. `seen` is what the guard would do, `applied` what it does."""

    line: RedisLine
    board: LoadCache
    step_ms: int = 2000
    recover_ms: int = 60_000
    observed: dict[str, Throttled] = field(default_factory=dict)
    enforced: dict[str, Throttled] = field(default_factory=dict)

    async def turn(self, room: WaitingRoom) -> Overload | None:
        """Moves the room's share by what the others show; the overload, if there is one."""
        pace = room.options.pace
        overload = self.board.overload(slow_ms=pace.slow_ms)
        if pace.guard == "off" and room.event_id not in self.observed:
            return overload
        share = await self._share(room, overload)
        if share is not None:
            self._note(room, share, overload)
        return overload

    def forget(self, event_id: str) -> None:
        """The room calls nobody: there is nothing to guard."""
        self.observed.pop(event_id, None)
        self.enforced.pop(event_id, None)

    async def _share(self, room: WaitingRoom, overload: Overload | None) -> float | None:
        """The room's share after this move; nothing while the engine is being filled."""
        pace = room.options.pace
        reply = await THROTTLE(
            self.line.redis,
            room=redis_keys.room(room.event_id),
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
            log.warning("guard.throttles", extra=data(event_id=name, reason=overload, mode=mode))
