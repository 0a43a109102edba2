"""A stream from its request to its beginning: who comes in, what is told to whom, and in which way it is held.

Three ways, one hub: detached from the server's request machinery, by ASGI alone, or by sse-starlette. They differ in
what a listener costs, never in what it hears.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from starlette.types import Receive, Scope

from services.notifier import by_library, detached, frames, portable
from services.notifier.connection import body
from services.notifier.event_feed import EventFeed
from services.notifier.feeds import Feed, Only
from services.notifier.opening import Opening, head
from services.notifier.problems import MalformedFilter
from services.notifier.room import Room
from services.notifier.settings import Transport
from services.notifier.turnstile import TurnedAway
from services.notifier.visit import Visit
from shared.hot_lane import QUIET_KEY
from shared.tokens import QueueToken

WAYS: Mapping[Transport, Callable[[Opening], Awaitable[bool]]] = {
    "detached": detached.hold,
    "asgi": portable.hold,
    "sse_starlette": by_library.hold,
}


class Listener(NamedTuple):
    """Who listens: the name its limits go by, and its place if it came with a queue token."""

    identity: str
    place: QueueToken | None = None


class Stream:
    """One request that listens."""

    def __init__(self, room: Room, scope: Scope, receive: Receive, send: Any, *, transport: Transport) -> None:
        self._room, self._scope, self._receive, self._send = room, scope, receive, send
        self._transport = transport
        scope[QUIET_KEY] = True

    async def serve(self, listener: Listener, held: AbstractAsyncContextManager[Feed], only: Only = None) -> None:
        """Answers with the stream, or turns the listener away."""
        if self._scope["method"] == "HEAD":
            await self._end(b"")
            return
        try:
            visit = Visit(self._room, listener.identity, listener.place)
            outlives = False
            try:
                async with held as feed:
                    visit.follow(feed)
                    outlives = await self._listen(feed, only, visit)
            finally:
                if not outlives:
                    visit.end()
        except TurnedAway as turned:
            settings = self._room.settings
            retry = frames.retry(settings.full_retry_ms, settings.full_retry_ms)
            await self._end(retry + frames.turned_away(turned.why))

    async def _end(self, data: bytes) -> None:
        await self._send(head())
        await self._send(body(data, more=False))

    async def _listen(self, feed: Feed, only: Only, visit: Visit) -> bool:
        """Whether the stream outlives this request."""
        hub = self._room.hub
        if hub.draining:
            raise TurnedAway("draining")
        if only is not None and only not in feed.topics and len(feed.topics) > self._room.settings.filters_per_event:
            raise TurnedAway("filters")
        if only is not None and isinstance(feed, EventFeed) and (unknown := feed.unknown(only)):
            raise MalformedFilter(f"sections: the event has no section {', '.join(sorted(unknown)[:5])}.")
        opening = Opening(hub, feed.topic(only), self._scope, self._receive, self._send, visit.end)
        return await WAYS[self._transport](opening)
