"""A feed: the latest frames of one event or one order by their channels, and the topics that broadcast them.

A published version means the same state in every process. A listener who has seen a version known here can therefore
get all changes since: an item differs from what they saw only if it differs between two states known here.

A feed lives while streams lease it and a little longer. It gets frames from Pub/Sub and restores missed ones from the
log; while neither works it requests them from the services, and its listeners get `degraded`. Frames older than the
current one are dropped.

The id of a frame is `<epoch>.<version>`: the state that a listener has seen, readable by every process. An event's
version combines those of its line and its stock, so two processes with different halves never use the same id; with a
section filter it also carries the filter's hash. A state that other processes may not have had (requested, or degraded)
has version 0, from which a stream resumes with a snapshot.
"""

import asyncio
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from services.notifier.metrics import MISSED, STALE
from services.notifier.topics import frames
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic, differing
from shared.contracts.frames import Frame
from shared.errors.problems import NotFound, Problem, UnknownEvent
from shared.redis.client import Redis
from shared.runtime.clock import now_ms

STATES_MAX = 512
AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Channel(Generic[AnyFrame]):
    """`request` gets the current frame from its service, `items` what of a frame changes one by one. `exact`: the
    version of the current frame means the same state in every process. `last_version`: the last published one.
    """

    def __init__(
        self,
        frame_type: type[AnyFrame],
        request: Callable[[], Awaitable[AnyFrame]],
        items: Callable[[AnyFrame], Mapping[str, object]],
    ) -> None:
        self.frame_type, self.request, self._items_of = frame_type, request, items
        self.frame: AnyFrame | None = None
        self.exact = False
        self.last_version: int | None = None
        self.received_s = asyncio.get_running_loop().time()
        self._forget()

    @property
    def current(self) -> AnyFrame:
        """The frame of a loaded channel."""
        assert self.frame is not None
        return self.frame

    def apply(self, frame: AnyFrame, *, exact: bool) -> bool:
        """Makes this the current frame, unless a later one is known or this one is not ready; returns whether it is."""
        if self.frame is not None:
            if _version(frame) <= _version(self.frame):
                STALE.inc(_version(frame) < _version(self.frame))
                return False
            if not frame.ready:
                return False
            if frame.epoch != self.frame.epoch:
                self._forget()
        self._set(frame, exact=exact and frame.ready)
        return True

    def replay(self, payloads: Sequence[bytes], fresh_s: float) -> bool:
        """Rebuilds the changes from the logged states of the last epoch. Returns whether the newest is at most
        `fresh_s` old. Raises `ValueError` if one is not a frame.
        """
        logged = [self.frame_type.model_validate_json(payload) for payload in payloads]
        states = sorted((frame for frame in logged if frame.ready), key=_version)
        if not states:
            return False
        newest, current, exact = states[-1], self.frame, self.exact
        if current is not None and current.epoch > newest.epoch:
            return False
        self._forget()
        for frame in states:
            if frame.epoch == newest.epoch:
                self._set(frame, exact=True)
        if current is not None and _version(current) >= _version(newest):
            self._set(current, exact=exact)
        self.last_version = max(logged[-1].version, self.last_version or 0)
        return now_ms() - newest.at_ms < fresh_s * 1000

    def since(self, version: int) -> set[str] | None:
        """The items that changed since this version, possibly a few more; `None` if the version is not known here."""
        number = self._numbers.get(version)
        return None if number is None else {name for name, at in self._changed.items() if at > number}

    def _forget(self) -> None:
        self._number = 0
        self._numbers: dict[int, int] = {}
        self._changed: dict[str, int] = {}
        self._items: Mapping[str, object] = {}

    def _set(self, frame: AnyFrame, *, exact: bool) -> None:
        self.frame, self.exact = frame, exact
        self._number += 1
        items = self._items_of(frame)
        self._changed.update(dict.fromkeys(differing(self._items, items), self._number))
        self._items = items
        if exact:
            self._numbers[frame.version] = self._number
            if len(self._numbers) > STATES_MAX:
                del self._numbers[next(iter(self._numbers))]


def _version(frame: Frame) -> tuple[int, int]:
    return frame.epoch, frame.version


SectionFilter = frozenset[str] | None
ALL_SEATS = frozenset({"*"})
NOT_FOUND = (UnknownEvent, NotFound)


class StreamFilter(NamedTuple):
    """What a stream shows of an event: the counts of some sections, or of all (`None`); the seats of some sections, of
    all (`ALL_SEATS`), or none (`None`).
    """

    sections: SectionFilter = None
    seats: frozenset[str] | None = None


class Feed(ABC):
    """Channels by name and topics by filter.

    `request_is_exact`: whether a requested frame has the same version for everybody, like a published one.
    `is_repeated`: whether frames are published again while nothing changes, so that a silent channel is degraded.
    `loaded_s`: when it was last begun to be loaded. `generation`: the connection of the subscriber at which that was
    done.
    """

    kind: str
    request_is_exact: bool
    is_repeated: bool

    def __init__(self, hub: Hub, channels: Mapping[str, Channel[Any]]) -> None:
        self.channels = channels
        self.event_id: str | None = None
        self.topics: dict[StreamFilter, Topic] = {}
        self.loaded = asyncio.Event()
        self.error: Problem | None = None
        self.degraded = self.has_gap = False
        self.generation, self.loaded_s = -1, asyncio.get_running_loop().time()
        self.load_task: asyncio.Task[None] | None = None
        self.lease_count = 0
        self.idle_since_s = asyncio.get_running_loop().time()
        self._hub = hub

    def release(self) -> None:
        """Ends one lease."""
        self.lease_count -= 1
        self.idle_since_s = asyncio.get_running_loop().time()

    def on_message(self, name: str, payload: bytes) -> None:
        """Applies a message from Pub/Sub. Sets `has_gap` if the one before it did not arrive. Raises `ValueError` if
        it is not a frame.
        """
        channel = self.channels[name]
        frame = channel.frame_type.model_validate_json(payload)
        last, channel.last_version = channel.last_version, frame.version
        if last is not None and frame.after is not None and frame.after != last:
            MISSED.inc()
            self.has_gap = True
        self.apply(name, frame, exact=True)
        channel.received_s = asyncio.get_running_loop().time()

    def apply(self, name: str, frame: Frame, *, exact: bool) -> None:
        """As `Channel.apply`, then updates the topics."""
        if self.channels[name].apply(frame, exact=exact):
            self._update_topics()

    def restore_from_log(self, log: Mapping[str, Sequence[bytes]], *, fresh_s: float) -> bool:
        """Applies the logged frames. Returns whether the newest of every channel is at most `fresh_s` old: then nothing
        was missed and nothing need be requested. Raises `ValueError` if one is not a frame.
        """
        complete = False not in [self.channels[name].replay(payloads, fresh_s) for name, payloads in log.items()]
        self._update_topics()
        return complete

    async def request_frames(self) -> None:
        """Requests every channel's frame from its service. Raises the first error after applying the other frames."""
        requests = (channel.request() for channel in self.channels.values())
        answers = await asyncio.gather(*requests, return_exceptions=True)
        for name, answer in zip(self.channels, answers, strict=True):
            if isinstance(answer, Frame):
                self.apply(name, answer, exact=self.request_is_exact)
        for answer in answers:
            if isinstance(answer, NOT_FOUND) and not self.loaded.is_set():
                self.error = answer
                self.loaded.set()
            if isinstance(answer, BaseException):
                raise answer

    def update_degraded(self, *, away: bool, now_s: float, channel_stale_after_s: float) -> bool:
        """Returns whether frames must be requested because Pub/Sub is away or a channel is silent. Listeners get a
        notice when that begins and when it ends.
        """
        last_s = min(channel.received_s for channel in self.channels.values())
        degraded = away or (self.is_repeated and last_s < now_s - channel_stale_after_s)
        if degraded != self.degraded:
            self.degraded = degraded
            for topic in self.topics.values():
                topic.add_notice(frames.notice(interrupted=degraded))
                self._hub.schedule(topic)
            self._update_topics()
        return degraded

    def topic(self, stream_filter: StreamFilter) -> Topic:
        """The topic with this filter; a new one holds the current state."""
        topic = self.topics.get(stream_filter)
        if topic is None:
            now_s = asyncio.get_running_loop().time()
            changes_since = partial(self._changes_since, stream_filter)
            topic = self.topics[stream_filter] = Topic(self.kind, now_s=now_s, changes_since=changes_since)
            topic.event_id = self.event_id
            self._update_topic(topic, stream_filter)
            topic.next_frame()
        return topic

    def _update_topics(self) -> None:
        if any(channel.frame is None for channel in self.channels.values()):
            return
        self.loaded.set()
        for stream_filter, topic in self.topics.items():
            if self._update_topic(topic, stream_filter):
                self._hub.schedule(topic)

    async def keep_watched(self, redis: Redis) -> None:  # noqa: B027 - most frames are published anyway
        """Says in Redis that somebody listens, for frames that are published only then. Raises what Redis raised."""

    def require_known(self, stream_filter: StreamFilter) -> None:  # noqa: B027 - an order has no filter
        """Raises `MalformedFilter` if it names what the event does not have."""

    def is_due(self, now_s: float) -> bool:
        """Whether it must be loaded again because frames that are not repeated may have been lost."""
        return False

    def belongs_to(self, holder: str) -> bool:
        """Whether this holder owns the order; never for an event."""
        return False

    @property
    def epoch(self) -> int:
        """The epoch of the event's waiting room; 0 for an order, which has none."""
        return 0

    @abstractmethod
    def _changes_since(self, stream_filter: StreamFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None: ...

    @abstractmethod
    def _update_topic(self, topic: Topic, stream_filter: StreamFilter) -> bool: ...


# -- ids of frames -----------------------------------------------------------------------------------------------------

STOCK_DIGITS, FILTER_DIGITS = 13, 9
FILTER_HASHES: int = 10**FILTER_DIGITS
_pattern = re.compile(rb"(\d{1,10})\.(\d{1,48})")


class EventVersions(NamedTuple):
    """The versions of an event's line and stock."""

    epoch: int
    line: int
    stock: int


def event_frame_id(versions: EventVersions, section_filter: SectionFilter) -> bytes:
    """The id of an event's state in a stream with this filter."""
    version = versions.line * 10**STOCK_DIGITS + versions.stock
    return b"%d.%d" % (
        versions.epoch,
        version if section_filter is None else version * FILTER_HASHES + _filter_hash(section_filter),
    )


def parse_event_frame_id(text: bytes, section_filter: SectionFilter) -> EventVersions | None:
    """The versions of an id; `None` if it is not an id of a stream with this filter."""
    match = parse_frame_id(text)
    if match is None:
        return None
    epoch, version = match
    if section_filter is not None:
        version, filter_hash = divmod(version, FILTER_HASHES)
        if filter_hash != _filter_hash(section_filter):
            return None
    return EventVersions(epoch, *divmod(version, 10**STOCK_DIGITS))


def non_resumable_id(epoch: int) -> bytes:
    """The id of a state that cannot be resumed from."""
    return b"%d.0" % epoch


def parse_frame_id(text: bytes) -> tuple[int, int] | None:
    """Epoch and version; `None` if this is not a frame id."""
    match = _pattern.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


def _filter_hash(section_filter: frozenset[str]) -> int:
    return zlib.crc32(",".join(sorted(section_filter)).encode()) % FILTER_HASHES
