"""How inventory and orders bear their load, as they show it, and whether that is too much.

One slow request or one refused fan is no overload. A frame that is stale says nothing, in either direction.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Literal

from pydantic import ValidationError

from shared.contracts.frames import FRAME_STALE_S, LOAD_CHANNELS, LoadFrame
from shared.ears import listen
from shared.logs import data
from shared.redis import Redis

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


class LoadBoard:
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
            word = judge([frame for frame in fresh if frame.service == service], slow_ms=slow_ms)
            if word is not None:
                return WORDS[service, word]
        return None


def judge(frames: Iterable[LoadFrame], *, slow_ms: int) -> str | None:
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
