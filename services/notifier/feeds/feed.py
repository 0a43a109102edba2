"""A feed: the latest frames of one event or one order, and the topics that broadcast them.

A feed lives while streams lease it and a little longer. It gets frames from Pub/Sub and restores missed ones from the
log; while neither works it requests them from the services, and its listeners get `degraded`. Frames older than the
current one are dropped.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from services.notifier.broadcast import frames
from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.feeds.change_index import ChangeIndex
from services.notifier.metrics import MISSED, STALE
from shared.contracts.frames import Frame
from shared.runtime.clock import now_ms
from shared.web.problems import NotFound, Problem, UnknownEvent

SectionFilter = frozenset[str] | None
NOT_FOUND = (UnknownEvent, NotFound)


class Feed(ABC):
    """Frames by channel and topics by section filter.

    `request_is_exact`: whether a requested frame has the same version for everybody, like a published one.
    `generation`: the connection of the subscriber at which the feed was loaded last.
    """

    kind: str
    request_is_exact = False

    def __init__(self, hub: Hub, frame_types: Mapping[str, type[Frame]]) -> None:
        self.frame_types = frame_types
        self.topics: dict[SectionFilter, Topic] = {}
        self.frames: dict[str, Frame] = {}
        self.loaded = asyncio.Event()
        self.error: Problem | None = None
        self.degraded = self.has_gap = False
        self.generation = -1
        self.load_task: asyncio.Task[None] | None = None
        self.lease_count = 0
        self.idle_since_s = now_s = asyncio.get_running_loop().time()
        self.received_s = dict.fromkeys(frame_types, now_s)
        self._hub = hub
        self._histories = {channel: ChangeIndex() for channel in frame_types}
        self._exact_channels: set[str] = set()
        self._last_version: dict[str, int] = {}

    def on_message(self, channel: str, payload: bytes) -> None:
        """Applies a message from Pub/Sub. Sets `has_gap` if the one before it did not arrive. Raises `ValueError` if
        it is not a frame.
        """
        frame = self.frame_types[channel].model_validate_json(payload)
        last = self._last_version.get(channel)
        if last is not None and frame.after is not None and frame.after != last:
            MISSED.inc()
            self.has_gap = True
        self._last_version[channel] = frame.version
        self.apply(channel, frame, exact=True)
        self.received_s[channel] = asyncio.get_running_loop().time()

    def apply(self, channel: str, frame: Frame, *, exact: bool) -> None:
        """Makes this the channel's current frame, unless a later one is known or this one is not ready. `exact`: its
        version means the same state in every process.
        """
        current = self.frames.get(channel)
        if current is not None and not _is_later(frame, current):
            STALE.inc()
            return
        if current is not None and not frame.ready:
            return
        if current is not None and current.epoch != frame.epoch:
            self._histories[channel] = ChangeIndex()
        self._set_frame(channel, frame, exact=exact and frame.ready)
        self._record(self._histories[channel], channel)
        self._update_topics()

    def restore_from_log(self, log: Mapping[str, Sequence[bytes]], *, fresh_s: float) -> bool:
        """Applies the logged frames. Returns whether the newest of every channel is at most `fresh_s` old: then nothing
        was missed and nothing need be requested. Raises `ValueError` if one is not a frame.
        """
        complete = False not in [self._replay_log(channel, payloads, fresh_s) for channel, payloads in log.items()]
        self._update_topics()
        return complete

    def _replay_log(self, channel: str, payloads: Sequence[bytes], fresh_s: float) -> bool:
        """Rebuilds the change index from the states of the last epoch, in order."""
        frames_in_log = [self.frame_types[channel].model_validate_json(payload) for payload in payloads]
        states = sorted((frame for frame in frames_in_log if frame.ready), key=_version)
        if not states:
            return False
        history, newest, current = ChangeIndex(), states[-1], self.frames.get(channel)
        for frame in states:
            if frame.epoch == newest.epoch:
                history.record(frame.version, self._items(frame))
        if current is None or _is_later(newest, current):
            self._set_frame(channel, newest, exact=True)
        elif current.epoch == newest.epoch:
            self._record(history, channel)
        else:
            return False
        self._histories[channel] = history
        self._last_version[channel] = max(frames_in_log[-1].version, self._last_version.get(channel, 0))
        return now_ms() - newest.at_ms < fresh_s * 1000

    def _set_frame(self, channel: str, frame: Frame, *, exact: bool) -> None:
        self.frames[channel] = frame
        (self._exact_channels.add if exact else self._exact_channels.discard)(channel)
        if len(self.frames) == len(self.frame_types):
            self.loaded.set()

    def _record(self, history: ChangeIndex, channel: str) -> None:
        frame = self.frames[channel]
        history.record(frame.version if channel in self._exact_channels else None, self._items(frame))

    async def request_frames(self) -> None:
        """Requests every channel's frame from its service. Raises the first error after applying the other frames."""
        channels = list(self.frame_types)
        answers = await asyncio.gather(*map(self._request_frame, channels), return_exceptions=True)
        for channel, answer in zip(channels, answers, strict=True):
            if isinstance(answer, Frame):
                self.apply(channel, answer, exact=self.request_is_exact)
        for answer in answers:
            if isinstance(answer, NOT_FOUND) and not self.loaded.is_set():
                self.error = answer
                self.loaded.set()
            if isinstance(answer, BaseException):
                raise answer

    def update_degraded(self, *, away: bool, now_s: float, channel_stale_after_s: float) -> bool:
        """Returns whether frames must be requested because Pub/Sub is away or the channel is silent. Listeners get a
        notice when that begins and when it ends.
        """
        degraded = away or self._is_silent(now_s - channel_stale_after_s)
        if degraded != self.degraded:
            self.degraded = degraded
            for topic in self.topics.values():
                topic.add_notice(frames.notice(interrupted=degraded))
                self._hub.schedule(topic)
            self._update_topics()
        return degraded

    def topic(self, section_filter: SectionFilter) -> Topic:
        """The topic with this section filter; a new one holds the current state."""
        topic = self.topics.get(section_filter)
        if topic is None:
            now_s = asyncio.get_running_loop().time()
            changes_since = partial(self._changes_since, section_filter)
            topic = self.topics[section_filter] = Topic(self.kind, now_s=now_s, changes_since=changes_since)
            self._update_topic(topic, section_filter)
            topic.next_frame()
        return topic

    def _update_topics(self) -> None:
        if len(self.frames) < len(self.frame_types):
            return
        for section_filter, topic in self.topics.items():
            if self._update_topic(topic, section_filter):
                self._hub.schedule(topic)

    def belongs_to(self, holder: str) -> bool:
        """Whether this holder owns the order; never for an event."""
        return False

    @abstractmethod
    def _is_silent(self, since_s: float) -> bool: ...

    @abstractmethod
    def _items(self, frame: Frame) -> Mapping[str, object]: ...

    @abstractmethod
    def _changes_since(self, section_filter: SectionFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None: ...

    @abstractmethod
    def _update_topic(self, topic: Topic, section_filter: SectionFilter) -> bool: ...

    @abstractmethod
    async def _request_frame(self, channel: str) -> Frame: ...


def _version(frame: Frame) -> tuple[int, int]:
    return frame.epoch, frame.version


def _is_later(frame: Frame, current: Frame) -> bool:
    return _version(frame) > _version(current)
