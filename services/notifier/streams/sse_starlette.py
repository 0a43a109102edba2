"""The sse-starlette transport: a library serves the stream, at five tasks and a few dozen KiB per stream.

It serves the stream of an order, which one or two listeners have.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from sse_starlette import EventSourceResponse

from services.notifier.streams.handshake import HEADERS, StreamHandshake
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection, Message, body_message, try_send
from shared.errors.problems import Problem


class SseStarletteStream(Connection):
    """Buffers data until the library requests it, up to the limit of a reader's buffer."""

    __slots__ = ("_abort", "_buffer", "_ended", "_hub", "_size_bytes", "_wake")
    transport_name = "sse_starlette"

    def __init__(self, hub: Hub, abort: Callable[[], object], on_end: Callable[[], object]) -> None:
        super().__init__(on_end)
        self._hub, self._abort = hub, abort
        self._buffer: list[bytes] = []
        self._size_bytes = 0
        self._ended = False
        self._wake = asyncio.Event()

    def write(self, message: Message) -> bool:
        return self._append(message.data)

    def _append(self, data: bytes) -> bool:
        if self._buffer and self._size_bytes + len(data) > self._hub.tuning.socket_buffer_bytes:
            return False
        self._buffer.append(data)
        self._size_bytes += len(data)
        self._wake.set()
        return True

    def end(self, data: bytes) -> bool:
        self._ended = self._append(data)
        return self._ended

    def abort(self) -> None:
        self._abort()

    def drain_buffer(self) -> bytes:
        """Returns and empties the buffer."""
        data, self._buffer, self._size_bytes = b"".join(self._buffer), [], 0
        return data

    async def frames(self) -> AsyncIterator[bytes]:
        """The data for the library, which requests more once the reader has read what it got."""
        while not self._ended or self._buffer:
            await self._wake.wait()
            self._wake.clear()
            yield self.drain_buffer()
            if self.paused_since_s is not None:
                self._hub.resume(self)


async def serve(handshake: StreamHandshake) -> bool:
    """Serves the stream until either side ends it. Returns `False`: the stream does not outlive its request."""
    hub = handshake.hub
    connection = SseStarletteStream(hub, handshake.aborter(), handshake.on_end)
    response = EventSourceResponse(connection.frames(), ping=0)
    response.raw_headers = list(HEADERS)
    handshake.start(connection)
    try:
        with suppress(asyncio.CancelledError, Problem):  # the server stops, or the request's body never ends
            await response(handshake.scope, handshake.receive, handshake.send)
        unsent = connection.drain_buffer() + (hub.retry() if connection.topic is not None else b"")
        if unsent:  # the library was stopped before it could write this
            with suppress(OSError, RuntimeError):
                try_send(handshake.send, body_message(unsent, more=False))
    finally:
        hub.remove(connection)
    return False
