"""A stream held by sse-starlette: five tasks and a few dozen KiB each, and nothing of ours between it and the reader.
For streams that are few, and the reference the other ways are tested against.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from sse_starlette import EventSourceResponse

from services.notifier.broadcast.hub import Hub
from services.notifier.streams.connection import Connection, Message, body, written
from services.notifier.streams.handshake import HEADERS, StreamHandshake
from shared.web.problems import Problem


class ByLibrary(Connection):
    """Keeps what is to be written until the library asks for it, within the bound on a reader's buffer."""

    __slots__ = ("_ended", "_hang_up", "_hub", "_size_bytes", "_waiting", "_wake")
    way = "sse_starlette"

    def __init__(self, hub: Hub, hang_up: Callable[[], object], left: Callable[[], object]) -> None:
        super().__init__(left)
        self._hub, self._hang_up = hub, hang_up
        self._waiting: list[bytes] = []
        self._size_bytes = 0
        self._ended = False
        self._wake = asyncio.Event()

    def write(self, message: Message) -> bool:
        return self._put(message.data)

    def _put(self, data: bytes) -> bool:
        if self._waiting and self._size_bytes + len(data) > self._hub.settings.socket_buffer_bytes:
            return False
        self._waiting.append(data)
        self._size_bytes += len(data)
        self._wake.set()
        return True

    def end(self, data: bytes) -> bool:
        self._ended = self._put(data)
        return self._ended

    def hang_up(self) -> None:
        self._hang_up()

    def taken(self) -> bytes:
        """All that waits; nothing waits then."""
        given, self._waiting, self._size_bytes = b"".join(self._waiting), [], 0
        return given

    async def frames(self) -> AsyncIterator[bytes]:
        """What the library writes; it asks for more when the reader has taken what it was given."""
        while not self._ended or self._waiting:
            await self._wake.wait()
            self._wake.clear()
            yield self.taken()
            if self.paused_since_s is not None:
                self._hub.reads_again(self)


async def hold(opening: StreamHandshake) -> bool:
    """Until either side ends it; answers that nothing is left of it then."""
    hub = opening.hub
    connection = ByLibrary(hub, opening.hang_up(), opening.left)
    response = EventSourceResponse(connection.frames(), ping=0)
    response.raw_headers = list(HEADERS)
    opening.listen(connection)
    try:
        with suppress(asyncio.CancelledError, Problem):  # the server stops, or the request's body never does
            await response(opening.scope, opening.receive, opening.send)
        unsaid = connection.taken() + (hub.retry() if connection.topic is not None else b"")
        if unsaid:  # the library was stopped before it could say so
            with suppress(OSError, RuntimeError):
                written(opening.send, body(unsaid, more=False))
    finally:
        hub.leave(connection)
    return False
