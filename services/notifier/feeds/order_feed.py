"""The feed of an order. Frames carry the version of its row, so requested ones are as exact as published ones.

They are published once, when the order changes. So an order of which nothing was heard for a while is requested again:
a frame that was lost is made good.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import orjson

from services.notifier.feeds.feed import Channel, Feed, StreamFilter, non_resumable_id, parse_frame_id
from services.notifier.topics import frames
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from shared.contracts.frames import OrderFrame, order_channel
from shared.runtime import tracing

SILENT_MAX_S = 5.0
ENDED_SILENT_MAX_S = 60.0  # an order that is sold or ended changes rarely, and its stream may be open for long


class OrderFeed(Feed):
    """One order."""

    kind = "order"
    request_is_exact = True
    is_repeated = False

    def __init__(self, reference: str, hub: Hub, *, read: Callable[[str], Awaitable[OrderFrame]]) -> None:
        self._order = Channel(OrderFrame, partial(read, reference), lambda frame: {"order": frame.version})
        super().__init__(hub, {order_channel(reference): self._order})

    def is_due(self, now_s: float) -> bool:
        is_open = self._order.frame is None or self._order.frame.status in ("pending", "review")
        last_s = max(self.loaded_s, self._order.received_s)
        return now_s - last_s >= (SILENT_MAX_S if is_open else ENDED_SILENT_MAX_S)

    def belongs_to(self, holder: str) -> bool:
        return self._order.current.holder == holder

    def _changes_since(self, stream_filter: StreamFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        versions = parse_frame_id(last_event_id)
        if versions is None or versions[0] != self._order.current.epoch:
            return None
        changed = self._order.since(versions[1])
        return None if changed is None else {"order": changed}

    def _update_topic(self, topic: Topic, stream_filter: StreamFilter) -> bool:
        frame = self._order.current
        topic.degraded = self.degraded
        body = frames.order_body(frame, degraded=self.degraded)
        topic.set_frame_id(non_resumable_id(frame.epoch) if self.degraded else b"%d.%d" % (frame.epoch, frame.version))
        with tracing.span("notifier order", parent=frame.traceparent):
            return topic.update("order", {"order": body}, lambda _: orjson.dumps(body), at_ms=frame.at_ms)
