"""Opens a stream: checks the limits, waits for the feed's first snapshot and hands the stream to its transport.

Streams of events, which crowds open, have the choice of two transports: detached from the server's request machinery,
and plain ASGI. An order has one or two listeners, and sse-starlette serves them. Transports differ in what a stream
costs, never in what it sends.
"""

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from starlette.types import Receive, Scope

from services.notifier.feeds.feed import ALL_SEATS, Feed, StreamFilter
from services.notifier.headroom import Headroom
from services.notifier.metrics import WIDENED
from services.notifier.problems import StreamRejected
from services.notifier.settings import Settings, Transport
from services.notifier.streams import asgi, detached
from services.notifier.streams.handshake import StreamHandshake, head_message
from services.notifier.topics import frames
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection, Topic, body_message
from shared.clients.heartbeats import HeartbeatReporter
from shared.clients.revoked_passes import RevokedPasses
from shared.concurrency.background import Quiet
from shared.errors.problems import BadCredential, StaleEpoch
from shared.security.tokens import Pass, QueueToken

EVERYTHING, EVERY_SEAT = StreamFilter(), StreamFilter(seats=ALL_SEATS)
Serve = Callable[[StreamHandshake], Awaitable[bool]]
TRANSPORTS: Mapping[Transport, Serve] = {
    "detached": detached.serve,
    "asgi": asgi.serve,
}
CHECK_S = 1.0


class StreamLimiter:
    """Limits open streams: per process, per fan or order, and by the headroom of the process. Every `acquire` that
    returns is followed by one `release`.

    A rejected stream is answered 200 with `retry`, an event that names the reason, and an end: an EventSource would
    never reconnect after any other answer.
    """

    def __init__(self, settings: Settings, headroom: Headroom) -> None:
        self._settings, self._headroom = settings, headroom
        self._per_identity = ceil(settings.streams_per_identity / settings.processes)
        self._by_identity: Counter[str] = Counter()
        self._open = self._rejected = 0

    def counts(self) -> dict[str, int]:
        """Open streams, and those rejected since the start, as a load frame has them."""
        return {"streams_open": self._open, "streams_rejected": self._rejected}

    def acquire(self, identity: str) -> None:
        """Raises `StreamRejected`."""
        if reason := self._reason_against(identity):
            self._rejected += 1
            raise StreamRejected(reason)
        self._open += 1
        self._by_identity[identity] += 1

    def _reason_against(self, identity: str) -> str | None:
        settings = self._settings
        if self._open >= settings.streams_max:
            return "full"
        if self._by_identity[identity] >= self._per_identity:
            return "identity"
        return self._headroom.shortage(asyncio.get_running_loop().time())

    def release(self, identity: str) -> None:
        self._open -= 1
        self._by_identity[identity] -= 1
        if not self._by_identity[identity]:
            del self._by_identity[identity]


class PassStreams:
    """The streams of this process that a pass opened: they end when their pass is revoked or the room is reset, not
    only when it expires. A stream that has ended is forgotten at the next check.

    Every second each is checked as at its opening. Pub/Sub and the queue's list tell which passes are revoked, the feed
    which epoch the room is in.
    """

    def __init__(self, hub: Hub, revoked_passes: RevokedPasses) -> None:
        self._hub, self._revoked_passes = hub, revoked_passes
        self._open: dict[Connection, tuple[Pass, Feed]] = {}

    async def require_not_revoked(self, admission: Pass) -> None:
        """Raises `BadCredential`."""
        if await self._revoked_passes.is_revoked(admission.event_id, admission.jti):
            raise BadCredential("This pass was revoked: its slot was released. Join the line again.")

    def add(self, connection: Connection, admission: Pass, feed: Feed) -> None:
        self._open[connection] = admission, feed

    async def check(self) -> Quiet:
        """Ends the streams whose pass is no longer valid."""
        for connection, (admission, feed) in list(self._open.items()):
            is_revoked = await self._revoked_passes.is_revoked(admission.event_id, admission.jti)
            if is_revoked or feed.epoch > admission.epoch:
                self._hub.close(connection, reason="revoked")
            if connection.topic is None:
                del self._open[connection]
        return Quiet(0)


class Listener(NamedTuple):
    """Who opens a stream: the identity that its limits count, its place if it has one, the pass or the epoch of its
    credential, and how long it may listen.
    """

    identity: str
    place: QueueToken | None = None
    admission: Pass | None = None
    epoch: int | None = None
    lasts_s: float = math.inf

    def require_epoch(self, epoch: int) -> None:
        """Raises `StaleEpoch`, for a pass `BadCredential`, if the waiting room was reset since the credential."""
        if self.epoch is None or self.epoch >= epoch:
            return
        if self.admission is None:
            raise StaleEpoch
        raise BadCredential("The waiting room was reset after this pass was issued. Join the line again.")


class StreamLease:
    """What one stream holds while it is open: a slot of the limiter, heartbeats of its place, and its feed. Releasing
    it twice is releasing it once.
    """

    __slots__ = ("_heartbeats", "_identity", "_limiter", "_place", "feed")

    def __init__(self, limiter: StreamLimiter, heartbeats: HeartbeatReporter, listener: Listener) -> None:
        """Raises `StreamRejected`."""
        limiter.acquire(listener.identity)
        self._limiter: StreamLimiter | None = limiter
        self._heartbeats, self._identity = heartbeats, listener.identity
        self.feed: Feed | None = None
        token, self._place = listener.place, None
        if token is not None:
            self._place = (sys.intern(token.event_id), token.epoch, token.lane, token.join_seq)
            heartbeats.connect(self._place)

    def release(self) -> None:
        limiter, self._limiter = self._limiter, None
        if limiter is None:
            return
        limiter.release(self._identity)
        if self._place is not None:
            self._heartbeats.disconnect(self._place)
        if self.feed is not None:
            self.feed.release()


class StreamOpener:
    """Opens the streams of this process."""

    def __init__(
        self, hub: Hub, limiter: StreamLimiter, heartbeats: HeartbeatReporter, pass_streams: PassStreams
    ) -> None:
        self._hub, self._limiter, self._heartbeats, self._pass_streams = hub, limiter, heartbeats, pass_streams

    async def serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Any,
        *,
        listener: Listener,
        lease_feed: Callable[[], Awaitable[Feed]],
        transport: Serve,
        stream_filter: StreamFilter = EVERYTHING,
    ) -> None:
        """Answers with the stream, or rejects it with `retry` and the reason. Raises `StaleEpoch`, `BadCredential`."""
        if scope["method"] == "HEAD":
            await _finish(send, b"")
            return
        try:
            lease, outlives_request = StreamLease(self._limiter, self._heartbeats, listener), False
            try:
                feed = lease.feed = await lease_feed()
                listener.require_epoch(feed.epoch)
                topic = self._topic(feed, stream_filter)
                outlives_request = await transport(
                    StreamHandshake(
                        hub=self._hub,
                        topic=topic,
                        scope=scope,
                        receive=receive,
                        send=send,
                        on_end=lease.release,
                        on_open=partial(self._opened, listener.admission, feed),
                        lasts_s=listener.lasts_s,
                    )
                )
            finally:
                if not outlives_request:
                    lease.release()
        except StreamRejected as rejected:
            retry_ms = self._hub.tuning.full_retry_ms
            await _finish(send, frames.retry(retry_ms, retry_ms) + frames.rejected(rejected.reason))

    def _opened(self, admission: Pass | None, feed: Feed, connection: Connection) -> None:
        if admission is not None:
            self._pass_streams.add(connection, admission, feed)

    def _topic(self, feed: Feed, stream_filter: StreamFilter) -> Topic:
        """Raises `StreamRejected`, `MalformedFilter`."""
        if self._hub.draining:
            raise StreamRejected("draining")
        feed.require_known(stream_filter)
        return feed.topic(self._affordable(feed, stream_filter))

    def _affordable(self, feed: Feed, stream_filter: StreamFilter) -> StreamFilter:
        """This filter, or the one that shows everything once the event has too many others: fans choose their filters,
        and nobody is turned away for those of others.
        """
        everything = EVERYTHING if stream_filter.seats is None else EVERY_SEAT
        if stream_filter in (everything, *feed.topics) or len(feed.topics) <= self._hub.tuning.filters_per_event:
            return stream_filter
        WIDENED.inc()
        return everything


async def _finish(send: Any, data: bytes) -> None:
    await send(head_message())
    await send(body_message(data, more=False))
