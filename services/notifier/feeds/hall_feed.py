"""The feed of an event whose streams show seats: line and stock as for everybody, and the states of the seats.

It exists beside the event's other feed, so that streams without seats pay nothing for those that have them. Inventory
publishes seats only while a process says that they are watched.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from services.notifier.feeds.channel import Channel
from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import ALL_SEATS, StreamFilter
from services.notifier.topics.hub import Hub
from services.notifier.topics.seat_part import SeatPart
from services.notifier.topics.topic import Topic
from shared.contracts.frames import SeatsFrame, seats_channel, seats_watched_key
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import QueueClient
from shared.rules import seat_codes


class HallFeed(EventFeed):
    """The line, the stock and the seats of one event."""

    def __init__(self, event_id: str, hub: Hub, *, queue: QueueClient, inventory: InventoryClient) -> None:
        super().__init__(event_id, hub, queue=queue, inventory=inventory)
        self._seats = Channel(SeatsFrame, partial(inventory.seats, event_id), lambda _: {})
        self.channels = {**self.channels, seats_channel(event_id): self._seats}
        self.watched_key = seats_watched_key(event_id)
        self._parts: WeakKeyDictionary[Topic, SeatPart] = WeakKeyDictionary()
        self._decoded: SeatsFrame | None = None
        self._codes: dict[str, bytes] = {}

    def unknown_seats(self, seats: frozenset[str]) -> frozenset[str]:
        """Those of these sections that have no seats."""
        return seats - ALL_SEATS - {section_id for section_id, _ in self._seats.current.sections}

    def restore_from_log(self, log: Mapping[str, Sequence[bytes]], *, fresh_s: float) -> bool:
        """Never complete: what changed while nobody watched was not published."""
        super().restore_from_log(log, fresh_s=fresh_s)
        return False

    def _changes_since(self, stream_filter: StreamFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None:
        """Those of line and sections, and all seats."""
        changes = super()._changes_since(stream_filter, last_event_id)
        return None if changes is None else {**changes, "seats": {"beginnings", "changes"}}

    def _update_topic(self, topic: Topic, stream_filter: StreamFilter) -> bool:
        changed = super()._update_topic(topic, stream_filter)
        frame, part = self._seats.current, self._parts.get(topic)
        if part is None:
            part = self._parts[topic] = SeatPart(whole_hall=stream_filter.seats == ALL_SEATS)
        items = part.update(self._codes_of(stream_filter.seats), epoch=frame.epoch, version=frame.version)
        return topic.update("seats", items, part.encode, at_ms=frame.at_ms) or changed

    def _codes_of(self, seats: frozenset[str] | None) -> bytes:
        """The states of the seats of these sections; each frame is decoded once."""
        frame = self._seats.current
        if frame is not self._decoded:
            codes, first = seat_codes.unpack(b64decode(frame.seats), sum(count for _, count in frame.sections)), 0
            self._decoded, self._codes = frame, {}
            for section_id, count in frame.sections:
                self._codes[section_id] = codes[first : first + count]
                first += count
        return b"".join(
            codes for section_id, codes in self._codes.items() if seats == ALL_SEATS or section_id in (seats or ())
        )
