"""The feed of an order. Its frames carry the version of its row, so asking is as exact as hearing."""

from collections.abc import Awaitable, Callable, Mapping

import orjson

from services.notifier.broadcast import frames
from services.notifier.broadcast.frame_ids import read_id, unshared_id
from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.feeds.feed import Feed, SectionFilter
from shared.contracts.frames import Frame, OrderFrame, order_channel


class OrderFeed(Feed):
    """One order. Its frames are not repeated while nothing happens: silence is not absence here."""

    kind = "order"
    asking_is_exact = True

    def __init__(self, reference: str, hub: Hub, *, read: Callable[[str], Awaitable[OrderFrame]]) -> None:
        self._channel, self._read, self._reference = order_channel(reference), read, reference
        super().__init__(hub, {self._channel: OrderFrame})

    def belongs_to(self, holder: str) -> bool:
        frame = self.frames[self._channel]
        return isinstance(frame, OrderFrame) and frame.holder == holder

    def _silent(self, since_s: float) -> bool:
        return False

    async def _ask(self, channel: str) -> Frame:
        return await self._read(self._reference)

    def _items(self, frame: Frame) -> Mapping[str, object]:
        return {"order": frame.version}

    def _missed(self, only: SectionFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        seen = read_id(last_event_id)
        if seen is None or seen[0] != self.frames[self._channel].epoch:
            return None
        changed = self._histories[self._channel].since(seen[1])
        return None if changed is None else {"order": changed}

    def _show(self, topic: Topic, only: SectionFilter) -> bool:
        frame = self.frames[self._channel]
        assert isinstance(frame, OrderFrame)
        topic.degraded = self.degraded
        fact = frames.order_fact(frame, degraded=self.degraded)
        topic.identify(unshared_id(frame.epoch) if self.degraded else b"%d.%d" % (frame.epoch, frame.version))
        return topic.show("order", {"order": fact}, lambda _: orjson.dumps(fact), at_ms=frame.at_ms)
