"""Where this process keeps the lines: frames heard on Pub/Sub, or asked from the queue while Pub/Sub is away.

An event nobody has shown yet is asked for once, however many fans want it; one that does not exist is remembered as
unknown for a second. What is older than `FRAME_STALE_S` gives no estimates and refuses nobody.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from services.gateway.metrics import FRAMES
from services.gateway.settings import Settings
from services.gateway.waiting_line.snapshot import LineSnapshot
from services.gateway.waiting_line.wait_estimate import EstimateAccuracy, WaitEstimate, WaitEstimator
from shared.contracts.frames import FRAME_REPEAT_S, FRAME_STALE_S, LINE_CHANNELS, LineFrame
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.runtime.clock import now_ms
from shared.web.problems import Overloaded, Problem, StaleEpoch, Unavailable, UnknownEvent
from shared.web.routes import EVENT_ID

UNKNOWN_S = 1.0
POLL_S = 1.0
IN_USE_S = 60.0
POLLED_AT_ONCE_MAX = 16
_event_id = re.compile(EVENT_ID)


class _Entry:
    """One event's latest line, when it was last shown on Pub/Sub, and when somebody last needed it."""

    __slots__ = ("estimate", "line", "promises", "shown_s", "used_s")

    def __init__(self, line: LineSnapshot, estimate: WaitEstimator) -> None:
        self.line, self.estimate, self.promises = line, estimate, EstimateAccuracy()
        self.shown_s = self.used_s = float("-inf")


class LineCache:
    """The latest line of every event, in memory."""

    def __init__(self, redis: Redis, queue: QueueClient, settings: Settings) -> None:
        self._redis, self._queue = redis, queue
        self._poll_ms = settings.poll_min_ms, settings.poll_max_ms
        self._events_max, self._first_asks_max = settings.events_max, settings.cold_lookups_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._listening = False
        self._now_s = time.monotonic()

    def seen(self, event_id: str) -> LineSnapshot | None:
        """The line if this process has it; no I/O."""
        entry = self._entries.get(event_id)
        if entry is None:
            return None
        entry.used_s = self._now_s
        return entry.line

    def told(self, event_id: str, lane: int, join_seq: int, body: Mapping[str, Any]) -> None:
        """A fan is being told this status; whether its wait was true is looked at when the line gets there."""
        wait_s, low_s, high_s = (body[f"estimated_wait_{name}"] or 0 for name in ("time", "low", "high"))
        self._entries[event_id].promises.record(
            lane, join_seq, wait_s or None, low_s=low_s, high_s=high_s, now_s=self._now_s
        )

    async def line(self, event_id: str) -> LineSnapshot:
        """The line, asked for on first use. Raises `UnknownEvent`, or `Unavailable` while nobody can tell."""
        line = self.seen(event_id)
        if line is None:
            await self._ask_once(event_id)
            line = self.seen(event_id)
            assert line is not None, "an answered question is on the board"
        return line

    async def line_of(self, event_id: str, epoch: int) -> LineSnapshot:
        """The line in this epoch, asked for again if the epoch is newer than what was heard. Raises `StaleEpoch` for
        an epoch that is over.
        """
        line = await self.line(event_id)
        if epoch > line.epoch:
            await self._ask_once(event_id)
            line = await self.line(event_id)
        if epoch != line.epoch:
            raise StaleEpoch if epoch < line.epoch else Unavailable("The line is being reset.")
        return line

    def fresh(self, line: LineSnapshot) -> bool:
        """Whether somebody may be refused on the strength of this line."""
        return line.frame.ready and time.monotonic() - line.heard_s <= FRAME_STALE_S

    def take(self, frame: LineFrame, *, came_by: str) -> None:
        """Puts a frame on the board unless it is older than the one there; the same again proves the line alive."""
        now_s = time.monotonic()
        entry = self._entries.get(frame.event_id)
        FRAMES.labels(came_by).inc()
        if entry is None:
            entry = self._make_room(frame, now_s)
        elif (frame.epoch, frame.version) >= (entry.line.epoch, entry.line.frame.version):
            entry.line = self._line(frame, entry.line, entry.estimate.observe(frame), now_s)
            entry.promises.changed_ms = entry.line.promise.at_ms
            entry.promises.evaluate(frame.epoch, entry.line.heads, now_s=now_s)
        if came_by == "shown":
            entry.shown_s = now_s

    def _make_room(self, frame: LineFrame, now_s: float) -> _Entry:
        estimate = WaitEstimator()
        entry = _Entry(self._line(frame, None, estimate.observe(frame), now_s), estimate)
        self._entries[frame.event_id] = entry
        if len(self._entries) > self._events_max:
            self._entries.popitem(last=False)
        return entry

    def _line(
        self, frame: LineFrame, previous: LineSnapshot | None, promise: WaitEstimate, now_s: float
    ) -> LineSnapshot:
        return LineSnapshot(frame, previous, promise=promise, heard_s=now_s, poll_ms=self._poll_ms)

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _ask_once(self, event_id: str) -> None:
        """One question for all who wonder at the same time; nobody's going away takes the answer from the others."""
        if not _event_id.fullmatch(event_id) or self._unknown.get(event_id, 0) > time.monotonic():
            raise UnknownEvent
        task = self._asking.get(event_id)
        if task is None:
            if len(self._asking) >= self._first_asks_max:
                raise Overloaded
            task = self._asking[event_id] = asyncio.create_task(self._ask(event_id))
            task.add_done_callback(lambda _: self._asking.pop(event_id, None))
        await asyncio.shield(task)

    async def _ask(self, event_id: str) -> None:
        try:
            self.take(await self._queue.frame(event_id), came_by="asked")
        except UnknownEvent:
            self._entries.pop(event_id, None)
            self._unknown[event_id] = time.monotonic() + UNKNOWN_S
            self._unknown.move_to_end(event_id)
            if len(self._unknown) > self._events_max:
                self._unknown.popitem(last=False)
            raise

    async def poll(self) -> None:
        """One turn a second: asks about lines in use that Pub/Sub has stopped showing, and notices stale ones."""
        self._now_s = now_s = time.monotonic()
        due = [
            event_id
            for event_id, entry in self._entries.items()
            if now_s - entry.used_s < IN_USE_S
            and (not self._listening or now_s - entry.shown_s > FRAME_REPEAT_S + POLL_S)
        ]
        for at in range(0, len(due), POLLED_AT_ONCE_MAX):
            asked = (self._ask_once(event_id) for event_id in due[at : at + POLLED_AT_ONCE_MAX])
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, Problem):
                    raise outcome
        self._expire_estimates()

    def _expire_estimates(self) -> None:
        """A line not heard of for too long goes on without estimates."""
        for entry in self._entries.values():
            line = entry.line
            if line.has_estimate and not self.fresh(line):
                entry.line = self._line(line.frame, line, entry.estimate.withdraw(now_ms()), line.heard_s)

    # -- listening -------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Takes in every line shown on Pub/Sub, for ever."""
        await listen(
            self._redis,
            LINE_CHANNELS,
            self._hear,
            begins=partial(self._hears, True),
            breaks=partial(self._hears, False),
        )

    def _hears(self, listening: bool) -> None:
        self._listening = listening

    def _hear(self, raw: bytes) -> None:
        try:
            frame = LineFrame.model_validate_json(raw)
        except ValidationError:
            FRAMES.labels("unreadable").inc()
            return
        self.take(frame, came_by="shown")
        self._unknown.pop(frame.event_id, None)

    async def close(self) -> None:
        """Ends the questions nobody needs any more."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
