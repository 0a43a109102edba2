"""The feed of an event: its line and its stock, told together under one id."""

from collections.abc import Awaitable, Callable, Collection, Mapping

import orjson

from services.notifier.broadcast import frames
from services.notifier.broadcast.frame_ids import Seen, event_id_of, read_event_id, unshared_id
from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.feeds.feed import Feed, SectionFilter
from shared.contracts.frames import Frame, LineFrame, StockFrame, line_channel, stock_channel
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import QueueClient


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

    def unknown(self, only: frozenset[str]) -> set[str]:
        """Those of these sections that the event does not have; nobody knows before its stock was shown."""
        stock = self.frames.get(self._stock)
        return set(only - frames.section_items(stock).keys()) if isinstance(stock, StockFrame) else set()

    def _silent(self, since_s: float) -> bool:
        return min(self.heard_s.values()) < since_s

    async def _ask(self, channel: str) -> Frame:
        return await self._ask_by[channel](self._event_id)

    def _items(self, frame: Frame) -> Mapping[str, object]:
        if isinstance(frame, LineFrame):
            return {"line": frames.line_fact(frame, degraded=False)}
        assert isinstance(frame, StockFrame)
        return frames.section_items(frame)

    def _missed(self, only: SectionFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        seen = read_event_id(last_event_id, only)
        if seen is None or seen.epoch != self.frames[self._line].epoch:
            return None
        line = self._histories[self._line].since(seen.line)
        sections = self._histories[self._stock].since(seen.stock)
        if line is None or sections is None:
            return None
        return {"line": line, "sections": sections if only is None else sections & only}

    def _show(self, topic: Topic, only: SectionFilter) -> bool:
        line, stock = self.frames[self._line], self.frames[self._stock]
        assert isinstance(line, LineFrame)
        assert isinstance(stock, StockFrame)
        topic.degraded, topic.window_ms = self.degraded, line.options.updates.window_ms
        line_news = self._show_line(topic, line)
        stock_news = self._show_stock(topic, stock, only)
        shared = not self.degraded and len(self._exact) == len(self.forms)
        seen = Seen(line.epoch, line.version, stock.version)
        topic.identify(event_id_of(seen, only) if shared else unshared_id(line.epoch))
        return line_news or stock_news

    def _show_line(self, topic: Topic, line: LineFrame) -> bool:
        fact = frames.line_fact(line, degraded=self.degraded)
        return topic.show("line", {"line": fact}, lambda _: orjson.dumps(fact), at_ms=line.at_ms)

    def _show_stock(self, topic: Topic, stock: StockFrame, only: SectionFilter) -> bool:
        degraded = self.degraded
        known = frames.section_items(stock)
        items: dict[str, object] = {
            name: (item, degraded) for name, item in known.items() if only is None or name in only
        }
        items = items or {"": degraded}  # that there are none is something to tell too

        def tell(names: Collection[str] | None) -> bytes:
            wanted = items if names is None else names
            return orjson.dumps(frames.sections_body(stock, wanted, delta=names is not None, degraded=degraded))

        return topic.show("sections", items, tell, at_ms=stock.at_ms)
