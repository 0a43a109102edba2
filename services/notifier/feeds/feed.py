"""Feeds: what is known of one event or one order, and the topics that tell it.

A feed lives while somebody holds it and a little longer. It hears frames from the inbox and finds those it missed in
the log; while both stay out it asks its neighbours instead and says so. A frame older than what is known is dropped.
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
REFUSALS = (UnknownEvent, NotFound)


class Feed(ABC):
    """One thing that is told: frames by channel, topics by filter."""

    kind: str
    asking_is_exact = False

    def __init__(self, hub: Hub, forms: Mapping[str, type[Frame]]) -> None:
        self.forms = forms
        self.topics: dict[SectionFilter, Topic] = {}
        self.frames: dict[str, Frame] = {}
        self.known = asyncio.Event()
        self.refused: Problem | None = None
        self.degraded = self.lacks = False
        self.generation = -1
        self.asking: asyncio.Task[None] | None = None
        self.holders = 0
        self.idle_since_s = now_s = asyncio.get_running_loop().time()
        self.heard_s = dict.fromkeys(forms, now_s)
        self._hub = hub
        self._histories = {channel: ChangeIndex() for channel in forms}
        self._exact: set[str] = set()
        self._last_shown: dict[str, int] = {}

    def hear(self, channel: str, payload: bytes) -> None:
        """A message from Pub/Sub; `lacks` if one before it did not arrive. Raises `ValueError` if it is not a frame."""
        frame = self.forms[channel].model_validate_json(payload)
        last = self._last_shown.get(channel)
        if last is not None and frame.after is not None and frame.after != last:
            MISSED.inc()
            self.lacks = True
        self._last_shown[channel] = frame.version
        self.take(channel, frame, exact=True)
        self.heard_s[channel] = asyncio.get_running_loop().time()

    def take(self, channel: str, frame: Frame, *, exact: bool) -> None:
        """The latest frame of this channel, unless a later one is known or this one tells of an engine not ready;
        `exact` if everybody knows the same state under its version.
        """
        known = self.frames.get(channel)
        if known is not None and not _later(frame, known):
            STALE.inc()
            return
        if known is not None and not frame.ready:
            return
        if known is not None and known.epoch != frame.epoch:
            self._histories[channel] = ChangeIndex()
        self._put(channel, frame, exact=exact and frame.ready)
        self._note(self._histories[channel], channel)
        self._show_all()

    def refill(self, log: Mapping[str, Sequence[bytes]], *, fresh_s: float) -> bool:
        """Takes in the frames that were shown lately. Says whether they reach up to now, for every channel: then
        nothing was missed, and nobody need be asked. Raises `ValueError` if one is not a frame.
        """
        complete = False not in [self._relive(channel, payloads, fresh_s) for channel, payloads in log.items()]
        self._show_all()
        return complete

    def _relive(self, channel: str, payloads: Sequence[bytes], fresh_s: float) -> bool:
        """Goes through the states again, in order, those of the last epoch only."""
        shown = [self.forms[channel].model_validate_json(payload) for payload in payloads]
        states = sorted((frame for frame in shown if frame.ready), key=_age)
        if not states:
            return False
        history, newest, known = ChangeIndex(), states[-1], self.frames.get(channel)
        for frame in states:
            if frame.epoch == newest.epoch:
                history.note(frame.version, self._items(frame))
        if known is None or _later(newest, known):
            self._put(channel, newest, exact=True)
        elif known.epoch == newest.epoch:
            self._note(history, channel)
        else:
            return False
        self._histories[channel] = history
        self._last_shown[channel] = max(shown[-1].version, self._last_shown.get(channel, 0))
        return now_ms() - newest.at_ms < fresh_s * 1000

    def _put(self, channel: str, frame: Frame, *, exact: bool) -> None:
        self.frames[channel] = frame
        (self._exact.add if exact else self._exact.discard)(channel)
        if len(self.frames) == len(self.forms):
            self.known.set()

    def _note(self, history: ChangeIndex, channel: str) -> None:
        frame = self.frames[channel]
        history.note(frame.version if channel in self._exact else None, self._items(frame))

    async def ask(self) -> None:
        """Asks the neighbours for every channel's frame. Raises what they answer when they answer badly."""
        channels = list(self.forms)
        answers = await asyncio.gather(*map(self._ask, channels), return_exceptions=True)
        for channel, answer in zip(channels, answers, strict=True):
            if isinstance(answer, Frame):
                self.take(channel, answer, exact=self.asking_is_exact)
        for answer in answers:
            if isinstance(answer, REFUSALS) and not self.known.is_set():
                self.refused = answer
                self.known.set()
            if isinstance(answer, BaseException):
                raise answer

    def judge(self, *, away: bool, now_s: float, channel_stale_after_s: float) -> bool:
        """Whether this feed must be followed by asking; its listeners are told when that begins and ends."""
        degraded = away or self._silent(now_s - channel_stale_after_s)
        if degraded != self.degraded:
            self.degraded = degraded
            for topic in self.topics.values():
                topic.tell(frames.notice(interrupted=degraded))
                self._hub.changed(topic)
            self._show_all()
        return degraded

    def topic(self, only: SectionFilter) -> Topic:
        """The topic with this filter, with its first snapshot."""
        topic = self.topics.get(only)
        if topic is None:
            now_s = asyncio.get_running_loop().time()
            missed = partial(self._missed, only)
            topic = self.topics[only] = Topic(self.kind, now_s=now_s, missed=missed)
            self._show(topic, only)
            topic.take_frame()
        return topic

    def _show_all(self) -> None:
        if len(self.frames) < len(self.forms):
            return
        for only, topic in self.topics.items():
            if self._show(topic, only):
                self._hub.changed(topic)

    def belongs_to(self, holder: str) -> bool:
        """Whether this is that holder's own."""
        return False

    @abstractmethod
    def _silent(self, since_s: float) -> bool: ...

    @abstractmethod
    def _items(self, frame: Frame) -> Mapping[str, object]: ...

    @abstractmethod
    def _missed(self, only: SectionFilter, last_event_id: bytes) -> Mapping[str, set[str]] | None: ...

    @abstractmethod
    def _show(self, topic: Topic, only: SectionFilter) -> bool: ...

    @abstractmethod
    async def _ask(self, channel: str) -> Frame: ...


def _age(frame: Frame) -> tuple[int, int]:
    return frame.epoch, frame.version


def _later(frame: Frame, known: Frame) -> bool:
    return _age(frame) > _age(known)
