"""The load meter: a process measures its public writes and publishes them each second, so the line can slow down; every
`QUIET_S` while there is nothing new, which its frames say.

A request still in flight counts with its age: a service that has stopped answering is slow, not idle.
"""

import random
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.pool import QueuePool
from starlette.types import Scope

from shared.concurrency.background import Quiet
from shared.contracts.frames import LoadFrame, load_channel
from shared.postgres.engine import AsyncEngine
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.clock import now_ms

SLOTS, QUIET_S = 5, 5.0
KEPT_MAX = 512  # durations kept per slot: enough for a p95
STUCK_S = 0.5
LOAD_S = 1.0
UNAVAILABLE = 503
NOT_FANS = ("/internal", "/admin", "/webhooks")


class _Slot:
    """The answers between two publications."""

    __slots__ = ("refused", "seconds", "writes")

    def __init__(self) -> None:
        self.writes = self.refused = 0
        self.seconds: list[float] = []


class LoadMeter:
    """Counts public writes, their durations and refusals over the last five slots of `publish`."""

    def __init__(self, service: str) -> None:
        self._service, self._process = service, f"{service}-{secrets.token_hex(6)}"
        self._slots: deque[_Slot] = deque([_Slot()], maxlen=SLOTS)
        self._open: dict[int, float] = {}
        self._last_number = 0
        self._full_since_s: float | None = None
        self._shown: dict[str, int] = {}

    def request_started(self, scope: Scope, started_s: float) -> int:
        """Records that a fan's write came in. Returns its number for `request_finished`; 0 for other requests."""
        if scope["method"] != "POST" or scope["path"].startswith(NOT_FANS):
            return 0
        self._last_number += 1
        self._open[self._last_number] = started_s
        return self._last_number

    def request_finished(self, number: int, status: int, seconds: float) -> None:
        """Records the answer to a request; `number` is what `request_started` returned."""
        slot = self._slots[-1]
        if status == UNAVAILABLE:
            slot.refused += 1
        if not number:
            return
        del self._open[number]
        slot.writes += 1
        if len(slot.seconds) < KEPT_MAX:
            slot.seconds.append(seconds)
        elif (at := random.randrange(slot.writes)) < KEPT_MAX:  # noqa: S311 - a fair sample, not a secret
            slot.seconds[at] = seconds

    def frame(self, *, pool_full_s: float = 0.0) -> LoadFrame:
        """The frame of the last slots; begins the next slot."""
        now_s = time.perf_counter()
        stuck = [now_s - started_s for started_s in self._open.values() if now_s - started_s >= STUCK_S]
        seconds = sorted([*(one for slot in self._slots for one in slot.seconds), *stuck])
        frame = LoadFrame(
            service=self._service,
            process=self._process,
            at_ms=now_ms(),
            writes=sum(slot.writes for slot in self._slots) + len(stuck),
            refused=sum(slot.refused for slot in self._slots),
            p95_ms=round(seconds[int(0.95 * (len(seconds) - 1))] * 1000, 1) if seconds else 0.0,
            pool_full_s=round(pool_full_s, 1),
        )
        self._slots.append(_Slot())
        return frame

    async def publish(self, redis: Redis, db: AsyncEngine) -> Quiet | None:
        """Publishes the frame of the last slots on the service's load channel."""
        frame = self.frame(pool_full_s=self._pool_full_s(db))
        is_new = bool(frame.writes or frame.refused or frame.pool_full_s or self._open)
        return await self._publish(redis, frame, is_new=is_new)

    async def publish_presence(self, redis: Redis, streams: Callable[[], dict[str, int]] = dict) -> Quiet | None:
        """Publishes a frame that says this process is alive, and the counts of a notifier's streams. Redis away is
        reported by whoever needs it.
        """
        before, self._shown = self._shown, streams()
        with suppress(*REDIS_AWAY):
            return await self._publish(redis, self.frame().model_copy(update=self._shown), is_new=before != self._shown)
        return None

    async def _publish(self, redis: Redis, frame: LoadFrame, *, is_new: bool) -> Quiet | None:
        frame = frame if is_new else frame.model_copy(update={"rests_ms": round(QUIET_S * 1000)})
        await redis.publish(load_channel(self._service), frame.model_dump_json(exclude_none=True))
        return None if is_new else Quiet(QUIET_S)

    def _pool_full_s(self, db: AsyncEngine) -> float:
        pool, now_s = db.pool, time.perf_counter()
        if not isinstance(pool, QueuePool) or pool.checkedout() < pool.size():
            self._full_since_s = None
            return 0.0
        self._full_since_s = self._full_since_s or now_s
        return now_s - self._full_since_s
