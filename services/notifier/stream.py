"""A stream as ASGI: from the response's head to the moment either side ends it.

Works on any server whose `send` waits only while the reader does not read. Under uvicorn the transport is in reach too,
so that what waits for one reader is bounded, and one who does not read can be cut off.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

from services.notifier import frames
from services.notifier.feeds import Feed, Only
from services.notifier.room import Room
from services.notifier.topic import Connection, body
from services.notifier.turnstile import TurnedAway
from shared.problems import Problem
from shared.service import RECEIVE_KEY
from shared.tokens import QueueToken

HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store, no-transform"),
        (b"x-accel-buffering", b"no"),
        (b"connection", b"close"),
    ],
}


class Listener(NamedTuple):
    """Who listens: the name its limits go by, and its place if it came with a queue token."""

    identity: str
    place: QueueToken | None = None


class Stream:
    """One request that listens."""

    def __init__(self, room: Room, scope: Scope, receive: Receive, send: Send) -> None:
        self._room, self._scope, self._receive, self._send = room, scope, receive, send
        scope["onsale.quiet"] = True

    async def serve(self, listener: Listener, held: AbstractAsyncContextManager[Feed], only: Only = None) -> None:
        """Answers with the stream, or turns the listener away."""
        if self._scope["method"] == "HEAD":
            await self._end(b"")
            return
        try:
            with self._room.turnstile.enter(listener.identity), self._room.life.listening(listener.place):
                async with held as feed:
                    await self._listen(feed, only)
        except TurnedAway:
            await self._end(frames.retry(self._room.settings.full_retry_ms))

    async def _end(self, data: bytes) -> None:
        await self._send(dict(HEAD))
        await self._send(body(data, more=False))

    async def _listen(self, feed: Feed, only: Only) -> None:
        hub = self._room.hub
        if hub.draining:
            raise TurnedAway("draining")
        if only is not None and only not in feed.topics and len(feed.topics) > self._room.settings.filters_per_event:
            raise TurnedAway("filters")
        connection = Connection(self._send, self._hang_up())
        await self._send(dict(HEAD))
        hub.open(connection, feed.topic(only), last_event_id=self._last_event_id())
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except (asyncio.CancelledError, Problem):  # the server stops, or the request's body never does
            hub.close(connection)
        finally:
            hub.leave(connection)

    def _hang_up(self) -> Callable[[], object]:
        """How to cut this reader off at once, with bounds set on what may wait for it."""
        transport: Any = getattr(getattr(self._scope.get(RECEIVE_KEY), "__self__", None), "transport", None)
        if not hasattr(transport, "abort"):  # by its verbs: uvloop's transports are no `asyncio.Transport`
            task = asyncio.current_task()
            assert task is not None
            return task.cancel
        waiting_max = self._room.settings.socket_buffer_bytes
        transport.set_write_buffer_limits(high=waiting_max)
        with suppress(OSError):  # it is gone already
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, waiting_max)
        abort: Callable[[], object] = transport.abort
        return abort

    def _last_event_id(self) -> bytes | None:
        return next((value for name, value in self._scope["headers"] if name == b"last-event-id"), None)
