"""Feeds: what is known of one event or one order, and the topics that tell it.

A feed lives while somebody holds it and a little longer. It hears frames from the inbox; while they stay out it asks
its neighbours instead and says so. A frame older than what is known is dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from services.notifier import frames
from services.notifier.hub import Hub
from services.notifier.metrics import STALE
from services.notifier.topic import Topic
from shared.contracts.frames import Frame, LineFrame, OrderFrame, StockFrame, line_channel, order_channel, stock_channel
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import QueueClient
from shared.problems import NotFound, Problem, UnknownEvent

Only = frozenset[str] | None
REFUSALS = (UnknownEvent, NotFound)


class Feed:
    """One thing that is told: frames by channel, topics by filter."""

    kind: str

    def __init__(self, hub: Hub, forms: Mapping[str, type[Frame]]) -> None:
        self.forms = forms
        self.topics: dict[Only, Topic] = {}
        self.frames: dict[str, Frame] = {}
        self.known = asyncio.Event()
        self.refused: Problem | None = None
        self.degraded = False
        self.generation = -1
        self.asking: asyncio.Task[None] | None = None
        self.holders = 0
        self.idle_since_s = now_s = asyncio.get_running_loop().time()
        self.heard_s = dict.fromkeys(forms, now_s)
        self._hub = hub

    def hear(self, channel: str, payload: bytes) -> None:
        """A message from Pub/Sub; raises `ValueError` if it is not a frame."""
        self.take(channel, self.forms[channel].model_validate_json(payload))
        self.heard_s[channel] = asyncio.get_running_loop().time()

    def take(self, channel: str, frame: Frame) -> None:
        """The latest frame of this channel, unless a later one is known or this one tells of an engine not ready."""
        known = self.frames.get(channel)
        if known is not None and (frame.epoch, frame.version) <= (known.epoch, known.version):
            STALE.inc()
            return
        if known is not None and not frame.ready:
            return
        self.frames[channel] = frame
        if len(self.frames) == len(self.forms):
            self.known.set()
            self._show_all()

    async def ask(self) -> None:
        """Asks the neighbours for every channel's frame. Raises what they answer when they answer badly."""
        channels = list(self.forms)
        answers = await asyncio.gather(*map(self._ask, channels), return_exceptions=True)
        for channel, answer in zip(channels, answers, strict=True):
            if isinstance(answer, Frame):
                self.take(channel, answer)
        for answer in answers:
            if isinstance(answer, REFUSALS) and not self.known.is_set():
                self.refused = answer
                self.known.set()
            if isinstance(answer, BaseException):
                raise answer

    def judge(self, *, away: bool, now_s: float, stale_s: float) -> bool:
        """Whether this feed must be followed by asking; its listeners are told when that begins and ends."""
        degraded = away or self._silent(now_s - stale_s)
        if degraded != self.degraded:
            self.degraded = degraded
            for topic in self.topics.values():
                topic.tell(frames.notice(interrupted=degraded))
                self._hub.changed(topic)
            self._show_all()
        return degraded

    def topic(self, only: Only) -> Topic:
        """The topic with this filter, with its first snapshot."""
        topic = self.topics.get(only)
        if topic is None:
            topic = self.topics[only] = Topic(self.kind, now_s=asyncio.get_running_loop().time())
            self._show(topic, only)
            topic.take_frame()
        return topic

    def _show_all(self) -> None:
        for only, topic in self.topics.items():
            if self._show(topic, only):
                self._hub.changed(topic)

    def _silent(self, since_s: float) -> bool:
        raise NotImplementedError

    def _show(self, topic: Topic, only: Only) -> bool:
        raise NotImplementedError

    async def _ask(self, channel: str) -> Frame:
        raise NotImplementedError


class EventFeed(Feed):
    """The line and the stock of one event."""

    kind = "event"

    def __init__(self, event_id: str, hub: Hub, *, queue: QueueClient, inventory: InventoryClient) -> None:
        self._line, self._stock = line_channel(event_id), stock_channel(event_id)
        self._ask_by: dict[str, Callable[[str], Awaitable[Frame]]] = {
            self._line: queue.frame,
            self._stock: inventory.stock,
        }
        self._event_id = event_id
        super().__init__(hub, {self._line: LineFrame, self._stock: StockFrame})

    def _silent(self, since_s: float) -> bool:
        return min(self.heard_s.values()) < since_s

    async def _ask(self, channel: str) -> Frame:
        return await self._ask_by[channel](self._event_id)

    def _show(self, topic: Topic, only: Only) -> bool:
        line, stock = self.frames[self._line], self.frames[self._stock]
        assert isinstance(line, LineFrame)
        assert isinstance(stock, StockFrame)
        topic.degraded = self.degraded
        frame_id = frames.event_frame_id(line, stock)
        line_news = topic.show("line", frames.line_fact(line, degraded=self.degraded), frame_id, at_ms=line.at_ms)
        stock_news = topic.show(
            "sections",
            frames.sections_fact(stock, only, degraded=self.degraded),
            frame_id,
            at_ms=stock.at_ms,
            body=lambda: frames.sections_body(stock, only, degraded=self.degraded),
        )
        return line_news or stock_news


class OrderFeed(Feed):
    """One order. Its frames are not repeated while nothing happens: silence is not absence here."""

    kind = "order"

    def __init__(self, reference: str, hub: Hub, *, read: Callable[[str], Awaitable[OrderFrame]]) -> None:
        self._channel, self._read, self._reference = order_channel(reference), read, reference
        super().__init__(hub, {self._channel: OrderFrame})

    def _silent(self, since_s: float) -> bool:
        return False

    async def _ask(self, channel: str) -> Frame:
        return await self._read(self._reference)

    def _show(self, topic: Topic, only: Only) -> bool:
        frame = self.frames[self._channel]
        assert isinstance(frame, OrderFrame)
        topic.degraded = self.degraded
        fact = frames.order_fact(frame, degraded=self.degraded)
        return topic.show("order", fact, frames.order_frame_id(frame), at_ms=frame.at_ms)
