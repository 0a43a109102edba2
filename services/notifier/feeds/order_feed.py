"""The feed of an order. Frames carry the version of its row, so requested ones are as exact as published ones."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import orjson

from services.notifier.feeds.channel import Channel
from services.notifier.feeds.feed import Feed, StreamFilter
from services.notifier.feeds.frame_ids import non_resumable_id, parse_frame_id
from services.notifier.topics import frames
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from shared.contracts.frames import OrderFrame, order_channel
from shared.runtime import tracing


class OrderFeed(Feed):
    """One order."""

    kind = "order"
    request_is_exact = True
    is_repeated = False

    def __init__(self, reference: str, hub: Hub, *, read: Callable[[str], Awaitable[OrderFrame]]) -> None:
        self._order = Channel(OrderFrame, partial(read, reference), lambda frame: {"order": frame.version})
        super().__init__(hub, {order_channel(reference): self._order})

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
