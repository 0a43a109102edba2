"""Publishes each room's frame, the snapshot of its line that gateways and notifiers show to fans."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from services.queue import redis_keys
from services.queue.admission.throughput import ThroughputMeter
from services.queue.metrics import LINE_MEMORY, POSITION_ERROR
from services.queue.rooms.model import WaitingRoom
from shared.contracts.frames import FRAME_REPEAT_S, LaneHead, LineFrame, Throttled, line_channel
from shared.messaging.snapshots import SnapshotPublisher
from shared.postgres.engine import DB_AWAY, AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.clock import now_ms

AGAIN_S = FRAME_REPEAT_S - 1
CALLING = frozenset({"open", "draining"})
GAUGES_S, SAMPLED_AHEAD_MAX = 30.0, 50_000  # a recount reads one row for each place before the sample
COUNT_LIVE = statement(__package__, "count_live_places")


class FramePublisher:
    """Keeps each room's last frame and publishes it: at once when it changes, otherwise every 5 s."""

    def __init__(self, showing: SnapshotPublisher) -> None:
        self._publisher = showing
        self._published: dict[str, tuple[float, LineFrame]] = {}
        self._meters: dict[str, ThroughputMeter] = {}
        self.throttles: Mapping[str, Throttled] = {}
        self.last: dict[str, LineFrame] = {}

    def frame_after_tick(self, room: WaitingRoom, state: Mapping[str, Any]) -> LineFrame:
        """The frame after a tick whose changes are committed."""
        pace = self._meters.setdefault(room.event_id, ThroughputMeter())
        lanes = {
            entry["lane"]: LaneHead(head_seq=entry["head_seq"], tail_seq=entry["tail_seq"]) for entry in state["lanes"]
        }
        waiting = any(lane.tail_seq > lane.head_seq for lane in lanes.values())
        pace.record(
            state["now_ms"], calls=state["calls"], scanned=state["scanned"], live=state["live"],
            rate_per_s=state["rate_per_s"], wanted=waiting and state["shown"] in CALLING,
        )  # fmt: skip
        calls_per_s = pace.calls_per_s
        return self._remember(
            room,
            lanes,
            version=state["version"],
            at_ms=state["now_ms"],
            ready=True,
            state=state["shown"],
            rate_per_s=round(state["rate_per_s"], 3),
            live_ratio=max(0.01, round(pace.live_ratio, 2)),  # a ratio of 0 would make every wait estimate 0
            calls_per_s=None if calls_per_s is None else round(calls_per_s, 1 if calls_per_s >= 10 else 3),
            throttled=self._throttled(room, state),
            full=state["called"] + state["active"] >= room.max_active,
            stock_bound=state["stock_bound"],
            calls_left=state.get("calls_left"),
            called_at_ms=state["called_at_ms"] or None,
            config_version=state["config_version"],
        )

    def _throttled(self, room: WaitingRoom, state: Mapping[str, Any]) -> Throttled | None:
        """The guard's throttle, or else the ramp of the rate after a loss of Redis."""
        throttled = self.throttles.get(room.event_id)
        if throttled is not None or state["config_version"] != room.version or room.rate_per_s == 0:
            return throttled
        factor = round(state["rate_per_s"] / room.rate_per_s, 2)
        return Throttled(factor=factor, reason="recovering") if factor < 1 else None

    def frame_from_db(self, room: WaitingRoom, lanes: Mapping[int, tuple[int, int]]) -> LineFrame:
        """The frame while Redis is unavailable: heads and tails from the database, nobody is called."""
        last = self.last.get(room.event_id)
        at_ms = now_ms()
        heads = {lane: LaneHead(head_seq=head, tail_seq=tail) for lane, (head, tail) in lanes.items()}
        state = last.state if last and last.epoch == room.epoch and room.state == "open" else room.state
        version = last.version + 1 if last else 1  # below any that Redis gives, whatever our clock says
        return self._remember(room, heads, version=version, at_ms=at_ms, ready=False, state=state, rate_per_s=0.0)

    def _remember(self, room: WaitingRoom, lanes: dict[int, LaneHead], **measured: Any) -> LineFrame:
        frame = LineFrame(
            event_id=room.event_id,
            epoch=room.epoch,
            lanes=lanes,
            message=room.public_message(measured["at_ms"]),
            queue_opens_at_ms=room.opens_ms,
            sale_starts_at_ms=room.starts_ms,
            liveness_window_s=room.liveness_window_s,
            max_line=room.max_line,
            options=room.options,
            lottery=room.ranking.to_frame(),
            **measured,
        )
        last = self.last.get(room.event_id)
        if last is None or (last.epoch, last.version) < (frame.epoch, frame.version):
            self.last[room.event_id] = frame
        return self.last[room.event_id]

    async def publish(self, frame: LineFrame) -> None:
        """Publishes the frame if it has changed or the last publication is 5 s old."""
        _, shown = self._published.get(frame.event_id, (0.0, None))
        if shown is not None and _same(shown, frame) and not self.is_due(frame.event_id):
            return
        await self._publisher.publish(line_channel(frame.event_id), frame)
        self._published[frame.event_id] = (asyncio.get_running_loop().time(), frame)

    def is_due(self, event_id: str) -> bool:
        """Whether the room's frame is to be published again, even unchanged: a pause may end a second early."""
        shown_s, _ = self._published.get(event_id, (-FRAME_REPEAT_S, None))
        return asyncio.get_running_loop().time() - shown_s >= AGAIN_S - 1

    def quiet_for_s(self, event_id: str) -> float:
        """How long the next tick may take to come. One that was just begun repeats a frame that is due."""
        shown_s, _ = self._published.get(event_id, (0.0, None))
        return AGAIN_S if self.is_due(event_id) else shown_s + AGAIN_S - asyncio.get_running_loop().time()


def _same(one: LineFrame, other: LineFrame) -> bool:
    ignored = {"version": 0, "at_ms": 0, "calls_per_s": None, "called_at_ms": None}
    return one.model_copy(update=ignored) == other.model_copy(update=ignored)


async def refresh_gauges(frames: FramePublisher, db: AsyncEngine, redis: Redis) -> None:
    """What is too dear for every tick: Redis' memory of each line, and how right a shown position is, by one place of
    each waiting line. A line that cannot be read keeps its gauges.
    """
    for event_id, frame in list(frames.last.items()):
        with suppress(*DB_AWAY):
            await _sample_position(db, frame)
        with suppress(*REDIS_AWAY):
            async with redis.pipeline(transaction=False) as pipeline:
                for key in redis_keys.parts(event_id, frame.epoch, frame.lanes):
                    pipeline.memory_usage(key)
                LINE_MEMORY.labels(event_id).set(sum(size or 0 for size in await pipeline.execute()))


async def _sample_position(db: AsyncEngine, frame: LineFrame) -> None:
    waiting = {lane: at.tail_seq - at.head_seq for lane, at in frame.lanes.items() if at.tail_seq > at.head_seq}
    if not waiting:
        POSITION_ERROR.labels(frame.event_id).set(0)
        return
    lane = random.choices(list(waiting), list(waiting.values()))[0]  # noqa: S311 - a sample
    shown = random.randint(1, min(waiting[lane], SAMPLED_AHEAD_MAX))  # noqa: S311
    place = {"event_id": frame.event_id, "epoch": frame.epoch, "lane": lane, "head_seq": frame.lanes[lane].head_seq}
    async with db.connect() as connection:
        alive = await connection.scalar(COUNT_LIVE, {**place, "ahead": shown})
    POSITION_ERROR.labels(frame.event_id).set(shown - alive)
