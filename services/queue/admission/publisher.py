"""The line as everybody sees it: the last frame of each room, and its way to Pub/Sub."""

import asyncio
from collections.abc import Mapping
from typing import Any

from services.queue.admission.throughput import ThroughputMeter
from services.queue.rooms.model import WaitingRoom
from shared.contracts.frames import FRAME_REPEAT_S, LaneHead, LineFrame, Throttled, line_channel
from shared.redis.snapshots import SnapshotPublisher
from shared.runtime.clock import now_ms

CALLING = frozenset({"open", "draining"})


class FramePublisher:
    """Remembers each room's last frame and shows it: on change at once, unchanged every 5 s."""

    def __init__(self, showing: SnapshotPublisher) -> None:
        self._showing = showing
        self._shown: dict[str, tuple[float, LineFrame]] = {}
        self._paces: dict[str, ThroughputMeter] = {}
        self.throttles: Mapping[str, Throttled] = {}
        self.last: dict[str, LineFrame] = {}

    def ticked(self, room: WaitingRoom, state: Mapping[str, Any]) -> LineFrame:
        """The frame after a turn whose changes are written."""
        pace = self._paces.setdefault(room.event_id, ThroughputMeter())
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
            live_ratio=max(0.01, round(pace.live_ratio, 2)),  # none at all would promise a wait of nothing
            calls_per_s=None if calls_per_s is None else round(calls_per_s, 1 if calls_per_s >= 10 else 3),
            throttled=self._throttled(room, state),
            full=state["called"] + state["active"] >= room.max_active,
            stock_bound=state["stock_bound"],
            called_at_ms=state["called_at_ms"] or None,
        )

    def _throttled(self, room: WaitingRoom, state: Mapping[str, Any]) -> Throttled | None:
        """The guard's word, or else that the rate still ramps up after a loss of the engine."""
        said = self.throttles.get(room.event_id)
        if said is not None or state["config_version"] != room.version or room.rate_per_s == 0:
            return said
        factor = round(state["rate_per_s"] / room.rate_per_s, 2)
        return Throttled(factor=factor, reason="recovering") if factor < 1 else None

    def unready(self, room: WaitingRoom, lanes: Mapping[int, tuple[int, int]]) -> LineFrame:
        """The frame while the engine is away: heads and tails from the ledger, nobody is called."""
        last = self.last.get(room.event_id)
        at_ms = now_ms()
        heads = {lane: LaneHead(head_seq=head, tail_seq=tail) for lane, (head, tail) in lanes.items()}
        state = last.state if last and last.epoch == room.epoch and room.state == "open" else room.state
        version = last.version + 1 if last else 1  # below any the engine gives, whatever our clock says
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
            lottery=room.draw.frame(),
            **measured,
        )
        last = self.last.get(room.event_id)
        if last is None or (last.epoch, last.version) < (frame.epoch, frame.version):
            self.last[room.event_id] = frame
        return self.last[room.event_id]

    async def show(self, frame: LineFrame) -> None:
        """Publishes the frame if it says something new or the last one is 5 s old."""
        now_s = asyncio.get_running_loop().time()
        shown_s, shown = self._shown.get(frame.event_id, (0.0, None))
        if shown is not None and _same(shown, frame) and now_s - shown_s < FRAME_REPEAT_S - 1:
            return
        await self._showing.publish(line_channel(frame.event_id), frame)
        self._shown[frame.event_id] = (now_s, frame)


def _same(one: LineFrame, other: LineFrame) -> bool:
    apart = {"version": 0, "at_ms": 0, "calls_per_s": None, "called_at_ms": None}
    return one.model_copy(update=apart) == other.model_copy(update=apart)
