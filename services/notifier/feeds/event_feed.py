"""The feed of an event: its line and its stock, broadcast together under one frame id."""

from collections.abc import Collection, Mapping
from functools import partial

import orjson

from services.notifier.feeds.feed import (
    Channel,
    EventVersions,
    Feed,
    SectionFilter,
    StreamFilter,
    event_frame_id,
    non_resumable_id,
    parse_event_frame_id,
)
from services.notifier.problems import MalformedFilter
from services.notifier.topics import frames
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from shared.contracts.frames import LineFrame, StockFrame, line_channel, stock_channel
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import QueueClient


class EventFeed(Feed):
    """The line and the stock of one event. `named_by` is the channel by which the registry finds it."""

    kind = "event"
    named_by = staticmethod(line_channel)
    request_is_exact = False
    is_repeated = True

    def __init__(self, event_id: str, hub: Hub, *, queue: QueueClient, inventory: InventoryClient) -> None:
        self._line = Channel(
            LineFrame, partial(queue.frame, event_id), lambda frame: {"line": frames.line_body(frame, degraded=False)}
        )
        self._stock = Channel(StockFrame, partial(inventory.stock, event_id), frames.section_items)
        super().__init__(hub, {line_channel(event_id): self._line, stock_channel(event_id): self._stock})
        self.event_id = event_id

    def require_known(self, stream_filter: StreamFilter) -> None:
        if unknown := (stream_filter.sections or frozenset()) - frames.section_items(self._stock.current).keys():
            raise MalformedFilter(f"sections: the event has no section {', '.join(sorted(unknown)[:5])}.")

    @property
    def epoch(self) -> int:
        return self._line.current.epoch

    def _changes_since(self, stream_filter: StreamFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        section_filter = stream_filter.sections
        versions = parse_event_frame_id(last_event_id, section_filter)
        if versions is None or versions.epoch != self._line.current.epoch:
            return None
        line, sections = self._line.since(versions.line), self._stock.since(versions.stock)
        if line is None or sections is None:
            return None
        return {"line": line, "sections": sections if section_filter is None else sections & section_filter}

    def _update_topic(self, topic: Topic, stream_filter: StreamFilter) -> bool:
        section_filter = stream_filter.sections
        line, stock = self._line.current, self._stock.current
        topic.degraded, topic.window_ms = self.degraded, line.options.updates.window_ms
        line_changed = self._update_line(topic, line)
        stock_changed = self._update_stock(topic, stock, section_filter)
        shared = not self.degraded and self._line.exact and self._stock.exact
        versions = EventVersions(line.epoch, line.version, stock.version)
        topic.set_frame_id(event_frame_id(versions, section_filter) if shared else non_resumable_id(line.epoch))
        return line_changed or stock_changed

    def _update_line(self, topic: Topic, line: LineFrame) -> bool:
        body = frames.line_body(line, degraded=self.degraded)
        return topic.update("line", {"line": body}, lambda _: orjson.dumps(body), at_ms=line.at_ms)

    def _update_stock(self, topic: Topic, stock: StockFrame, section_filter: SectionFilter) -> bool:
        degraded = self.degraded
        items: dict[str, object] = {
            name: (item, degraded)
            for name, item in frames.section_items(stock).items()
            if section_filter is None or name in section_filter
        }
        items = items or {"": degraded}  # an event without sections has an item too: `degraded`

        def encode(names: Collection[str] | None) -> bytes:
            included = items if names is None else names
            return orjson.dumps(frames.sections_body(stock, included, delta=names is not None, degraded=degraded))

        return topic.update("sections", items, encode, at_ms=stock.at_ms)
