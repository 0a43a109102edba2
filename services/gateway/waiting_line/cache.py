"""The cache of lines: frames from Pub/Sub, or requested from the queue while Pub/Sub is away.

An event that is not cached is requested once, however many fans need it; an unknown event is cached as unknown for a
second. A line older than `FRAME_STALE_S` gives no estimates, and no fan is refused because of it.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from cachetools import FIFOCache, TTLCache
from pydantic import ValidationError

from services.gateway.metrics import FRAMES
from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS, Tuning
from services.gateway.waiting_line.snapshot import LineSnapshot, Polls
from services.gateway.waiting_line.wait_estimate import EstimateAccuracy, WaitEstimate, WaitEstimator
from shared.concurrency.background import Quiet
from shared.concurrency.coalescing import SingleFlight, chunks
from shared.contracts.frames import FRAME_REPEAT_S, FRAME_STALE_S, LINE_CHANNELS, LineFrame
from shared.contracts.queue import QueueClient
from shared.errors.problems import Problem, StaleEpoch, Unavailable, UnknownEvent
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.routes import EVENT_ID
from shared.runtime.clock import now_ms

UNKNOWN_TTL_S = 1.0
POLL_S = 1.0
IN_USE_S = 60.0
POLLS_IN_FLIGHT_MAX = 16
_event_id = re.compile(EVENT_ID)


class _Entry:
    """One event's latest line, when Pub/Sub last delivered it, and when it was last read (both monotonic)."""

    __slots__ = ("accuracy", "estimator", "line", "published_s", "used_s")

    def __init__(self, line: LineSnapshot, estimator: WaitEstimator) -> None:
        self.line, self.estimator, self.accuracy = line, estimator, EstimateAccuracy()
        self.published_s = self.used_s = float("-inf")


class LineCache:
    """The latest line of each event, in memory."""

    def __init__(self, redis: Redis, queue: QueueClient, settings: Settings, tuning: Tuning = DEFAULTS) -> None:
        self._redis, self._queue = redis, queue
        self._polls = Polls(tuning.poll_min_ms, tuning.poll_max_ms, per_s=settings.polls_per_s)
        self._entries: FIFOCache[str, _Entry] = FIFOCache(tuning.events_max)
        self._unknown: TTLCache[str, None] = TTLCache(tuning.events_max, UNKNOWN_TTL_S)
        self._fetches: SingleFlight[None] = SingleFlight(in_flight_max=tuning.cold_lookups_max)
        self._listening = False
        self._now_s = time.monotonic()

    def cached(self, event_id: str) -> LineSnapshot | None:
        """The line if this process has it; without I/O."""
        entry = self._entries.get(event_id)
        if entry is None:
            return None
        entry.used_s = self._now_s
        return entry.line

    def record_estimate(self, event_id: str, lane: int, join_seq: int, body: Mapping[str, Any]) -> None:
        """Samples the wait of this status answer, to compare it with the actual wait when the place is called."""
        low_s, high_s = body["estimated_wait_low"] or 0, body["estimated_wait_high"] or 0
        self._entries[event_id].accuracy.record(
            lane, join_seq, body["estimated_wait_time"] or None, low_s=low_s, high_s=high_s, now_s=self._now_s
        )

    async def line(self, event_id: str) -> LineSnapshot:
        """The line, requested on first use. Raises `UnknownEvent`, `Overloaded`, `Unavailable`."""
        line = self.cached(event_id)
        if line is None:
            await self._fetch_once(event_id)
            line = self.cached(event_id)
            assert line is not None, "a fetched line is cached"
        return line

    async def line_in_epoch(self, event_id: str, epoch: int) -> LineSnapshot:
        """The line in this epoch, requested again if the epoch is newer than the cached one. Raises `StaleEpoch` for an
        epoch that has ended, `Unavailable` for one that has not begun.
        """
        line = await self.line(event_id)
        if epoch > line.epoch:
            await self._fetch_once(event_id)
            line = await self.line(event_id)
        if epoch != line.epoch:
            raise StaleEpoch if epoch < line.epoch else Unavailable("The line is being reset. Try again in a moment.")
        return line

    def is_fresh(self, line: LineSnapshot) -> bool:
        """Whether this line is recent enough to refuse a fan because of it."""
        return line.frame.ready and time.monotonic() - line.received_s <= FRAME_STALE_S

    def store(self, frame: LineFrame, *, source: str) -> None:
        """Caches a frame unless it is older than the cached one; a repeated frame keeps the line fresh."""
        now_s = time.monotonic()
        entry = self._entries.get(frame.event_id)
        FRAMES.labels(source).inc()
        if entry is None:
            estimator = WaitEstimator()
            entry = _Entry(self._snapshot(frame, None, estimator.observe(frame), now_s), estimator)
            self._entries[frame.event_id] = entry
        elif (frame.epoch, frame.version) >= (entry.line.epoch, entry.line.frame.version):
            entry.line = self._snapshot(frame, entry.line, entry.estimator.observe(frame), now_s)
            entry.accuracy.changed_ms = entry.line.estimate.at_ms
            entry.accuracy.evaluate(frame.epoch, entry.line.heads, now_s=now_s)
        if source == "pubsub":
            entry.published_s = now_s

    def _snapshot(
        self, frame: LineFrame, previous: LineSnapshot | None, estimate: WaitEstimate, now_s: float
    ) -> LineSnapshot:
        return LineSnapshot(frame, previous, estimate=estimate, received_s=now_s, polls=self._polls)

    # -- requests --------------------------------------------------------------------------------------------------

    async def _fetch_once(self, event_id: str) -> None:
        """Fetches once for all concurrent callers; a caller that is cancelled does not cancel the fetch."""
        if not _event_id.fullmatch(event_id) or event_id in self._unknown:
            raise UnknownEvent
        await self._fetches.run(event_id, partial(self._fetch, event_id))

    async def _fetch(self, event_id: str) -> None:
        try:
            self.store(await self._queue.frame(event_id), source="request")
        except UnknownEvent:
            self._entries.pop(event_id, None)
            self._unknown[event_id] = None
            raise

    async def poll(self) -> Quiet:
        """Runs once a second: requests lines in use that Pub/Sub has stopped delivering, and expires estimates."""
        self._now_s = now_s = time.monotonic()
        due = [
            event_id
            for event_id, entry in self._entries.items()
            if now_s - entry.used_s < IN_USE_S
            and (not self._listening or now_s - entry.published_s > FRAME_REPEAT_S + POLL_S)
        ]
        for event_ids in chunks(due, POLLS_IN_FLIGHT_MAX):
            for outcome in await asyncio.gather(*map(self._fetch_once, event_ids), return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, Problem):
                    raise outcome
        self._expire_estimates()
        return Quiet(0)

    def _expire_estimates(self) -> None:
        """Withdraws the estimates of lines that are stale."""
        for entry in self._entries.values():
            line = entry.line
            if line.estimate.per_place_s is not None and not self.is_fresh(line):
                entry.line = self._snapshot(
                    line.frame, line, entry.estimator.withdraw("unknown", now_ms()), line.received_s
                )

    # -- listening -------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Caches every line that Pub/Sub delivers, for ever."""
        await listen(
            self._redis,
            LINE_CHANNELS,
            self._on_message,
            on_subscribed=partial(self._set_listening, True),
            on_lost=partial(self._set_listening, False),
        )

    def _set_listening(self, listening: bool) -> None:
        self._listening = listening

    def _on_message(self, raw: bytes) -> None:
        try:
            frame = LineFrame.model_validate_json(raw)
        except ValidationError:
            FRAMES.labels("invalid").inc()
            return
        self.store(frame, source="pubsub")
        self._unknown.pop(frame.event_id, None)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._fetches.close()
