"""The feed of an order. Frames carry the version of its row, so requested ones are as exact as published ones."""

from collections.abc import Awaitable, Callable, Mapping

import orjson

from services.notifier.broadcast import frames
from services.notifier.broadcast.frame_ids import non_resumable_id, parse_frame_id
from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.feeds.feed import Feed, SectionFilter
from shared.contracts.frames import Frame, OrderFrame, order_channel


class OrderFeed(Feed):
    """One order. Its frames are not repeated while nothing changes, so a silent channel is not degraded."""

    kind = "order"
    request_is_exact = True

    def __init__(self, reference: str, hub: Hub, *, read: Callable[[str], Awaitable[OrderFrame]]) -> None:
        self._channel, self._read, self._reference = order_channel(reference), read, reference
        super().__init__(hub, {self._channel: OrderFrame})

    def belongs_to(self, holder: str) -> bool:
        frame = self.frames[self._channel]
        return isinstance(frame, OrderFrame) and frame.holder == holder

    def _is_silent(self, since_s: float) -> bool:
        return False

    async def _request_frame(self, channel: str) -> Frame:
        return await self._read(self._reference)

    def _items(self, frame: Frame) -> Mapping[str, object]:
        return {"order": frame.version}

    def _changes_since(self, section_filter: SectionFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        versions = parse_frame_id(last_event_id)
        if versions is None or versions[0] != self.frames[self._channel].epoch:
            return None
        changed = self._histories[self._channel].since(versions[1])
        return None if changed is None else {"order": changed}

    def _update_topic(self, topic: Topic, section_filter: SectionFilter) -> bool:
        frame = self.frames[self._channel]
        assert isinstance(frame, OrderFrame)
        topic.degraded = self.degraded
        body = frames.order_body(frame, degraded=self.degraded)
        topic.set_frame_id(non_resumable_id(frame.epoch) if self.degraded else b"%d.%d" % (frame.epoch, frame.version))
        return topic.update("order", {"order": body}, lambda _: orjson.dumps(body), at_ms=frame.at_ms)
