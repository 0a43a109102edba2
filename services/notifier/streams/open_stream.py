"""A stream from its request to its beginning: who comes in, what is told to whom, and in which way it is held.

Three ways, one hub: detached from the server's request machinery, by ASGI alone, or by sse-starlette. They differ in
what a listener costs, never in what it hears.

A visit: what a listener holds for as long as it listens, in whichever way its stream is held.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from starlette.types import Receive, Scope

from services.notifier.broadcast import frames
from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import Feed, SectionFilter
from services.notifier.heartbeats import place_of
from services.notifier.problems import MalformedFilter
from services.notifier.settings import Transport
from services.notifier.state import State
from services.notifier.streams import asgi, detached, sse_starlette
from services.notifier.streams.connection import body
from services.notifier.streams.handshake import StreamHandshake, head
from services.notifier.streams.limits import StreamRejected
from shared.security.tokens import QueueToken
from shared.web.fast_routes import QUIET_KEY


class StreamLease:
    """A count at the turnstile, a place's sign of life, and, once it is known, a feed. Ending twice is ending once."""

    __slots__ = ("_feed", "_identity", "_place", "_state")

    def __init__(self, state: State, identity: str, token: QueueToken | None) -> None:
        """Raises `StreamRejected`."""
        state.turnstile.enter(identity)
        self._state: State | None = state
        self._identity = identity
        self._place = None if token is None else place_of(token)
        self._feed: Feed | None = None
        if self._place is not None:
            state.life.begins(self._place)

    def follow(self, feed: Feed) -> None:
        """The feed lives at least as long as this visit."""
        feed.holders += 1
        self._feed = feed

    def end(self) -> None:
        """Gives everything back."""
        state, self._state = self._state, None
        if state is None:
            return
        state.turnstile.leave(self._identity)
        if self._place is not None:
            state.life.ends(self._place)
        if self._feed is not None:
            self._feed.holders -= 1
            self._feed.idle_since_s = asyncio.get_running_loop().time()


WAYS: Mapping[Transport, Callable[[StreamHandshake], Awaitable[bool]]] = {
    "detached": detached.hold,
    "asgi": asgi.hold,
    "sse_starlette": sse_starlette.hold,
}


class Listener(NamedTuple):
    """Who listens: the name its limits go by, and its place if it came with a queue token."""

    identity: str
    place: QueueToken | None = None


class Stream:
    """One request that listens."""

    def __init__(self, state: State, scope: Scope, receive: Receive, send: Any, *, transport: Transport) -> None:
        self._state, self._scope, self._receive, self._send = state, scope, receive, send
        self._transport = transport
        scope[QUIET_KEY] = True

    async def serve(
        self, listener: Listener, held: AbstractAsyncContextManager[Feed], only: SectionFilter = None
    ) -> None:
        """Answers with the stream, or turns the listener away."""
        if self._scope["method"] == "HEAD":
            await self._end(b"")
            return
        try:
            visit = StreamLease(self._state, listener.identity, listener.place)
            outlives = False
            try:
                async with held as feed:
                    visit.follow(feed)
                    outlives = await self._listen(feed, only, visit)
            finally:
                if not outlives:
                    visit.end()
        except StreamRejected as turned:
            settings = self._state.settings
            retry = frames.retry(settings.full_retry_ms, settings.full_retry_ms)
            await self._end(retry + frames.turned_away(turned.why))

    async def _end(self, data: bytes) -> None:
        await self._send(head())
        await self._send(body(data, more=False))

    async def _listen(self, feed: Feed, only: SectionFilter, visit: StreamLease) -> bool:
        """Whether the stream outlives this request."""
        hub = self._state.hub
        if hub.draining:
            raise StreamRejected("draining")
        if only is not None and only not in feed.topics and len(feed.topics) > self._state.settings.filters_per_event:
            raise StreamRejected("filters")
        if only is not None and isinstance(feed, EventFeed) and (unknown := feed.unknown(only)):
            raise MalformedFilter(f"sections: the event has no section {', '.join(sorted(unknown)[:5])}.")
        opening = StreamHandshake(hub, feed.topic(only), self._scope, self._receive, self._send, visit.end)
        return await WAYS[self._transport](opening)
