"""The part of the notifier: the feed of an event whose streams show seats. It has line and stock as for everybody, and
the states of the seats.

It exists beside the event's other feed, so that streams without seats pay nothing for those that have them. Inventory
publishes seats only while a process says that they are watched.

A topic's event `seats` has all seats it shows at first, then what changed; if it shows the whole hall it says so, as a
listener may have asked for a part. A delta names every seat that changed since the frame before it, also one that
changed back: whoever has a state of some version in between, read from inventory, has the state of the delta
afterwards.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakKeyDictionary

import orjson

from features.hall import seat_codes
from features.hall.seat_codes import SEATS_WATCHED_S, SeatsFrame, seats_channel, seats_watched_key
from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import ALL_SEATS, Channel, StreamFilter
from services.notifier.problems import MalformedFilter
from services.notifier.state import State
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient, ReadStock
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis
from shared.web.parts import Part


class SeatPart:
    """One topic's seats as they are and as they were sent. `_sent`: the last frame's version; 0 if it is none."""

    def __init__(self, *, whole_hall: bool) -> None:
        self._more = {"all": True} if whole_hall else {}
        self._codes = b""
        self._epoch, self._version, self._sent = -1, 0, 0
        self._beginnings = self._changes = 0
        self._changed: set[int] = set()

    def update(self, codes: bytes, *, epoch: int, version: int) -> Mapping[str, object]:
        """Sets the state; returns the items that the topic compares. A hall with other seats or of another epoch begins
        anew: then all items differ, which makes the next frame a snapshot.
        """
        if epoch != self._epoch or len(codes) != len(self._codes):
            self._epoch, self._sent = epoch, version
            self._beginnings += 1
            self._changes += 1
            self._changed.clear()
        elif changed := seat_codes.differing(self._codes, codes):
            self._changed.update(changed)
            self._changes += 1
        self._codes, self._version = codes, version
        return {"beginnings": self._beginnings, "changes": self._changes}

    def encode(self, names: Collection[str] | None) -> bytes:
        """A snapshot, or the changes since the last frame."""
        if names is None or not self._sent:
            return orjson.dumps(
                {"v": self._version, "s": b64encode(seat_codes.pack(self._codes)).decode(), **self._more}
            )
        data = seat_codes.encode_changes(self._codes, sorted(self._changed))
        body = {"v": self._version, "after": self._sent, "d": b64encode(data).decode(), **self._more}
        self._sent = self._version
        self._changed.clear()
        return orjson.dumps(body)


class HallFeed(EventFeed):
    """The line, the stock and the seats of one event."""

    named_by = staticmethod(seats_channel)

    def __init__(self, event_id: str, hub: Hub, *, queue: QueueClient, inventory: InventoryClient) -> None:
        super().__init__(event_id, hub, queue=queue, inventory=inventory)
        ask = partial(inventory.ask, "/seats", ReadStock(event_id=event_id), SeatsFrame)
        self._seats = Channel(SeatsFrame, ask, lambda _: {})
        self.channels = {**self.channels, seats_channel(event_id): self._seats}
        self._watched_key = seats_watched_key(event_id)
        self._parts: WeakKeyDictionary[Topic, SeatPart] = WeakKeyDictionary()
        self._decoded: SeatsFrame | None = None
        self._codes: dict[str, bytes] = {}

    async def keep_watched(self, redis: Redis) -> None:
        await redis.set(self._watched_key, 1, ex=SEATS_WATCHED_S)

    def require_known(self, stream_filter: StreamFilter) -> None:
        super().require_known(stream_filter)
        known = {section_id for section_id, _ in self._seats.current.sections}
        if unknown := (stream_filter.seats or frozenset()) - ALL_SEATS - known:
            raise MalformedFilter(f"seats: there are no seats in a section {', '.join(sorted(unknown)[:5])}.")

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


@asynccontextmanager
async def open_hall(state: State, _: Loops) -> AsyncIterator[type[HallFeed]]:
    """Streams may show seats."""
    state.feeds.with_seats = HallFeed
    yield HallFeed


PART = Part(open=open_hall)
